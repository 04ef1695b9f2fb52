// Point-to-point messages of one rank of a group: posting, matching, progress.
//
// Whoever waits drives: wait() moves messages until its own transfer is done. While
// nobody waits a thread does the same; it starts with the first transfer that is posted
// without being waited for. Never touches the arena, so collectives and messages
// do not block each other. A failed message fails alone: the group goes on.
//
// Thread-safe. Callbacks of a Work run outside the lock, so they may post again.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "allhands/base/buffer.hpp"
#include "allhands/base/error.hpp"
#include "allhands/base/membership.hpp"
#include "allhands/base/placement.hpp"
#include "allhands/base/shared_memory.hpp"
#include "allhands/base/tuning.hpp"
#include "allhands/base/wait.hpp"
#include "allhands/engine/channel.hpp"
#include "allhands/engine/matching.hpp"
#include "allhands/engine/transfer.hpp"

namespace allhands {

// When a wait looks around again, whether or not it is kept busy. The time runs from
// the first question.
class Lookout {
 public:
  bool is_due() {
    const auto now = Deadline::Clock::now();
    if (now < next_) return false;
    const bool is_first = next_ == Deadline::Clock::time_point();
    next_ = now + Wait::kSlice;
    return !is_first;
  }

 private:
  Deadline::Clock::time_point next_{};
};

// Transfers that a step of progress has ended.
struct Ended {
  bool is_any = false;
  std::vector<TransferPtr> to_announce;

  // `error` null: success.
  void add(TransferPtr transfer, std::exception_ptr error) {
    is_any = true;
    if (transfer->work.settle(std::move(error)))
      to_announce.push_back(std::move(transfer));
  }
};

class ProgressEngine {
 public:
  enum class AtEnd { GiveUp, GoOn };
  // Why a rank has aborted the group, if it said so.
  using Failure = std::function<std::optional<Error>()>;

  // `base`: where the mailroom of the group lies in `memory`.
  ProgressEngine(
      std::shared_ptr<SharedMemory> memory, std::byte* base,
      const Membership& membership, const Tuning& tuning,
      Failure failure = [] { return std::nullopt; },
      const LateNotice& late_notice = {});
  ProgressEngine(const ProgressEngine&) = delete;
  ProgressEngine& operator=(const ProgressEngine&) = delete;
  ~ProgressEngine();

  // Returns when `buffer` may be changed again; throws as post_send and wait.
  void send(const Buffer& buffer, int to, std::int64_t tag, const Limits& limits);
  // Returns the source, when `buffer` has its message; throws as post_recv and wait.
  int recv(const Buffer& buffer, int from, std::int64_t tag, const Limits& limits);

  // Posts without waiting. Throws RankFailed where the destination is gone, the
  // Mismatch of an earlier message that the peer could not take, and after leave() its
  // reason.
  TransferPtr post_send(const Buffer& buffer, int to, std::int64_t tag,
                        Deadline deadline);
  // `from` may be kAnySource.
  TransferPtr post_recv(const Buffer& buffer, int from, std::int64_t tag,
                        Deadline deadline);

  // Returns when the transfer has succeeded; throws why it failed: Mismatch,
  // RankFailed, Timeout, Interrupted. The last two give the transfer up.
  void wait(const TransferPtr& transfer, const Limits& limits, AtEnd at_end);
  // Leaves the transfer to the engine's thread, if it has not ended yet.
  void drive(const TransferPtr& transfer);

  // Ends the transfer with `error`, if it has not ended yet.
  void give_up(const TransferPtr& transfer, const Error& error);

  // Waits until everything posted has gone and every receiver has it or can still read
  // it. Throws Timeout naming the receivers that did not come, the Mismatch of a
  // message that could not be taken, the RankFailed of a send that nobody waited for,
  // or Interrupted.
  void flush(const Limits& limits);
  // Ends all transfers that are left with `reason`, tells the peers that this rank is
  // gone, and with kAborted ends theirs too. From any thread.
  void leave(const Error& reason, Leaving how = kLeft);
  // After leave(): ends the thread. Not from a Work's callback.
  void join();

 private:
  void check_sendable(const Buffer& buffer, int to, std::int64_t tag);
  bool recv_at_once(const Buffer& buffer, int from, std::int64_t tag);
  bool progress();
  void serve(int peer);
  bool pull(int source, Ended& ended);
  bool push(int peer, Ended& ended);
  bool copy(int peer, Ended& ended);
  bool copy_inbound(int source, Ended& ended);
  void handle(int source, const std::byte* record, Ended& ended);
  void start(int source, const Message& message, const std::byte* data,
             TransferPtr receive, Ended& ended);
  void take_in_pieces(int source, TransferPtr receive, std::uint32_t send_id);
  void take_next(int source);
  TransferPtr end_taking(int source, std::uint32_t send_id);
  TransferPtr end_inbound(int source);
  void count_copying(Channel& peer);
  void take_piece(int source, const Message& message, const std::byte* data,
                  Ended& ended);
  void take_refusal(int source, const Message& message, Ended& ended);
  void take_cancel(int source, const Message& message, Ended& ended);
  void look_around();
  void fail_gone_peers(const std::vector<int>& gone);
  void fail_expired();
  void withdraw(const TransferPtr& transfer, const Error& error, Ended& ended);
  std::vector<TransferPtr> pending();
  std::vector<int> unserved_peers();
  bool has_sends();
  bool is_gone(int peer) const;
  bool has_aborted(int peer) const;
  Error abortion(int peer) const;
  bool was_gone_lately(int peer);
  void throw_refusals(int peer);
  void run();
  bool rest();
  bool has_record_from(int peer) const;
  bool wait_for_news(std::uint32_t seen, const Transfer& transfer);
  void sleep(std::uint32_t seen, const Transfer* transfer, const Deadline* deadline);

  Error given_up(const Transfer& receive) const;
  Error mismatch(int source, const Message& sent, const Transfer& receive) const;
  Error timeout_of(const Transfer& transfer, const Deadline& deadline) const;
  void tell_if_late(const Transfer& transfer, const Deadline& deadline);
  std::string describe(const Transfer& transfer) const;
  std::string describe_peer(const Transfer& transfer) const;
  void complete(Ended& ended);

  Channel& channel(int peer) { return channels_[static_cast<std::size_t>(peer)]; }

  std::shared_ptr<SharedMemory> memory_;
  Membership membership_;
  const Tuning tuning_;
  Failure failure_;
  LateNotice late_notice_;
  Bell& bell_;
  std::atomic<int> waiting_ = 0;   // threads in wait()
  std::atomic<int> sleepers_ = 0;  // threads asleep on the bell
  // The bell's count when the rings were last looked at.
  std::atomic<std::uint32_t> scanned_ = 0;

  std::atomic<int> num_copying_ = 0;  // channels with slices for us to copy

  std::mutex placement_mutex_;  // guards what follows
  Placement placement_;

  std::mutex mutex_;  // guards what follows
  std::vector<Channel> channels_;
  Matching matching_;
  std::uint32_t next_id_ = 1;
  std::optional<Error> ended_;           // why nothing can be posted any more
  std::vector<TransferPtr> lost_sends_;  // to peers that are gone

  std::mutex thread_mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<TransferPtr> driven_;
  bool is_fresh_ = false;  // some of them came since the thread last looked
  bool is_thread_asleep_ = false;
  std::thread thread_;
  bool stop_ = false;
};

}  // namespace allhands
