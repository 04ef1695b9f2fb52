// Point-to-point messages of one rank of a group: posting, waiting, progress.
//
// A thread that waits makes progress itself: wait() moves messages until its own
// transfer is done. While no thread waits, the engine's thread does the same.
// Collectives and messages do not block each other. A failed message fails alone, and
// the group goes on. If a link, memory or a lock fails, the engine aborts the group, so
// that no rank waits for what is lost.
//
// Thread-safe. Callbacks of a Work run outside the lock, so they may post again.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "allhands/base/buffer.hpp"
#include "allhands/base/error.hpp"
#include "allhands/base/fork_mark.hpp"
#include "allhands/base/wait.hpp"
#include "allhands/engine/endpoint.hpp"
#include "allhands/engine/peer_watch.hpp"
#include "allhands/engine/progress_thread.hpp"
#include "allhands/engine/transfer.hpp"
#include "allhands/host/membership.hpp"
#include "allhands/host/tuning.hpp"
#include "allhands/transport/transport.hpp"

namespace allhands {

// What an engine asks and tells the group that it serves. May be called from any
// thread.
struct ServedGroup {
  // The ThreadMark of callbacks.
  const void* mark = nullptr;
  // What broke the group, if something did.
  PeerWatch::Failure failure = [] { return std::nullopt; };
  // Called outside the engine's lock if the engine cannot go on.
  std::function<void(const Error&)> fail = [](const Error&) {};
  // Counts the threads that wait for a transfer; null: the engine has its own count.
  std::atomic<int>* num_waiting = nullptr;
};

// Moves the messages of one rank of a group.
class ProgressEngine {
 public:
  // What a wait that ends first does with its transfer: gives it up, leaves it to the
  // engine and waits for its end, or leaves it to the caller.
  enum class AtEnd { GiveUp, GoOn, Leave };

  ProgressEngine(std::unique_ptr<Transport> transport, const Membership& members,
                 const Tuning& tuning, ServedGroup group = {},
                 const LateNotice& late_notice = {});
  ProgressEngine(const ProgressEngine&) = delete;
  ProgressEngine& operator=(const ProgressEngine&) = delete;
  ~ProgressEngine();

  // Sends a message that needs no wait: a small one, if the link has room. Returns
  // false if it was not sent. Throws as post_send.
  bool send_at_once(const Buffer& buffer, int to, Tag tag);
  // Returns when `buffer` may be changed again. Throws as post_send and wait, and Value
  // if a send to this rank itself would wait for a receive that is not posted.
  void send(const Buffer& buffer, int to, Tag tag, const Limits& limits);
  // Returns the source, when `buffer` has its message. Throws as post_recv and wait,
  // and Value if a receive from this rank itself would wait for a send.
  int recv(const Buffer& buffer, int from, Tag tag, const Limits& limits);

  // Posts without waiting. Throws RankFailed if the destination is gone, the Mismatch
  // of an earlier message that the peer could not take, and after leave() its reason.
  // `record` ends with the transfer, unless this throws.
  TransferPtr post_send(const Buffer& buffer, int to, Tag tag, Deadline deadline,
                        FlightSlot* record = nullptr);
  // Posts several sends, in order, with as few system calls as possible.
  std::vector<TransferPtr> post_sends(std::span<const Buffer> buffers, int to, Tag tag,
                                      Deadline deadline);
  // `from` may be kAnySource, the number of `tag` kAnyTag.
  TransferPtr post_recv(const Buffer& buffer, int from, Tag tag, Deadline deadline,
                        FlightSlot* record = nullptr, Fit fit = Fit::Exact);
  // Returns a probe that has found a message now, or null if none has come. Throws what
  // a wait for it would throw at once.
  TransferPtr probe_now(int from, Tag tag);
  // Throws Value if a blocking call of this rank with itself would have to wait, as
  // only another thread could end that.
  void check_counterpart(const Transfer& to_itself);

  // Returns when the transfer has succeeded. Throws why it failed: Mismatch,
  // RankFailed, Timeout or Interrupted. What becomes of it after the last two, `at_end`
  // says.
  void wait(const TransferPtr& transfer, const Limits& limits, AtEnd at_end);
  // Leaves the transfer to the engine's thread, if it has not ended yet. Throws Backend
  // if there is no thread; the transfer is given up then.
  void drive(const TransferPtr& transfer);

  // Ends those of the transfers with `error` that have not ended yet. They are in the
  // order in which they were posted, and no peer gets one without those before it.
  void give_up(std::span<const TransferPtr> transfers, const Error& error);

  // What broke the group or made a peer abort it, if something did. For code that waits
  // for something else.
  std::optional<Error> abortion() const { return watch_.abortion(); }
  // See PeerWatch.
  std::vector<std::pair<int, std::string>> endings() const { return watch_.endings(); }

  // Waits until everything posted has left and every receiver has it or can still read
  // it. Throws Timeout naming the receivers that did not come, the Mismatch of a
  // message that could not be taken, the RankFailed of messages that a peer left
  // without, unless this rank has been told so, or Interrupted.
  void flush(const Limits& limits);
  // Any thread: ends all remaining transfers with `reason`, and tells the peers that
  // this rank is gone; Aborted also ends the peers' transfers.
  void leave(const Error& reason, Presence how = Presence::Left);
  // Call after leave(), and not from a Work's callback. Ends the thread.
  void join() { thread_.join(); }

 private:
  template <class Body>
  bool step(Body body);
  bool step_on(int peer);
  bool progress();
  void turn();
  void complete(Ended& ended);
  void break_off(std::exception_ptr cause);
  [[noreturn]] void throw_ended();

  void check_sendable(const Buffer& buffer, int to, Tag tag, Ended& ended);
  bool recv_at_once(const Buffer& buffer, int from, Tag tag);

  WaitEnd look_at_limits(const Wait& wait, const TransferPtr& transfer, AtEnd at_end);
  void tell_and_give_up(const TransferPtr& transfer, const Error& error);
  bool has_record_from(int peer) const {
    return peer != kAnySource && transport_->link(peer).has_record();
  }
  bool wait_for_news(std::uint32_t seen, const Transfer& transfer);
  void end_lent(int peer);
  void sleep(std::uint32_t seen, const Transfer* transfer, Deadline::Duration limit);

  void look_around();
  std::vector<int> gone_counterparts();
  void fail_with(const std::vector<int>& gone);
  std::vector<int> unserved_peers();
  void throw_losses();
  void throw_untold_sends();

  const ForkMark process_;
  const std::unique_ptr<Transport> transport_;
  const Membership members_;
  const Tuning tuning_;
  const ServedGroup group_;
  LateNotice late_notice_;
  std::atomic<int> own_waiting_ = 0;
  std::atomic<int>& waiting_;      // threads in wait()
  std::atomic<int> sleepers_ = 0;  // threads asleep until an event
  // The number of events when the links were last looked at.
  std::atomic<std::uint32_t> scanned_ = 0;
  std::mutex placement_mutex_;  // guards the transport's Placement

  std::mutex mutex_;  // guards what follows
  PeerWatch watch_;
  Endpoint endpoint_;
  std::optional<Error> ended_;     // why nothing can be posted any more
  std::vector<TransferPtr> lost_;  // with peers that are gone
  std::vector<bool> is_told_;      // by peer: whether a call has thrown that it is gone

  const Limits forever_{Deadline::never()};
  Wait lookout_{forever_};  // the thread's
  ProgressThread thread_;
};

}  // namespace allhands
