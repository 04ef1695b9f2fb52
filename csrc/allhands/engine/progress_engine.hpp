// Point-to-point messages of one rank of a group: posting, matching, progress.
//
// Whoever waits drives: wait() moves messages until its own transfer is done. A thread
// does the same for transfers that nobody waits for; it starts with the first that is
// posted without being waited for. Never touches the arena, so collectives and messages
// do not block each other. A failed message fails alone: the group goes on.
//
// Thread-safe. Transfers are completed outside the lock, so a Work's callbacks may post
// again.
#pragma once

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
#include "allhands/base/limits.hpp"
#include "allhands/base/membership.hpp"
#include "allhands/base/shared_memory.hpp"
#include "allhands/engine/channel.hpp"
#include "allhands/engine/matching.hpp"
#include "allhands/engine/transfer.hpp"

namespace allhands {

// When a wait looks around again, whether or not it is kept busy.
class Lookout {
 public:
  bool is_due() {
    const auto now = Deadline::Clock::now();
    if (now < next_) return false;
    next_ = now + kEvery;
    return true;
  }

 private:
  static constexpr std::chrono::milliseconds kEvery{kInterruptSliceMs};
  Deadline::Clock::time_point next_ = Deadline::Clock::now() + kEvery;
};

class ProgressEngine {
 public:
  enum class AtEnd { GiveUp, GoOn };
  // Why a rank has aborted the group, if it said so.
  using Failure = std::function<std::optional<Error>()>;

  // `base`: where the mailroom of the group lies in `memory`.
  ProgressEngine(
      std::shared_ptr<SharedMemory> memory, std::byte* base,
      const Membership& membership, Failure failure = [] { return std::nullopt; });
  ProgressEngine(const ProgressEngine&) = delete;
  ProgressEngine& operator=(const ProgressEngine&) = delete;
  ~ProgressEngine();

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
  // message that could not be taken, or Interrupted.
  void flush(const Limits& limits);
  // Ends all transfers that are left with `reason`, tells the peers that this rank is
  // gone, and with kAborted ends theirs too. From any thread.
  void leave(const Error& reason, Leaving how = kLeft);
  // After leave(): ends the thread. Not from a Work's callback.
  void join();

 private:
  using Done = std::vector<std::pair<TransferPtr, std::exception_ptr>>;

  bool progress();
  bool pull(int source, Done& done);
  bool push(int peer, Done& done);
  void handle(int source, const std::byte* record, Done& done);
  void start(int source, const Message& message, const std::byte* data,
             TransferPtr receive, Done& done);
  void take_piece(int source, const Message& message, const std::byte* data,
                  Done& done);
  void take_refusal(int source, const Message& message, Done& done);
  void take_cancel(int source, const Message& message, Done& done);
  void look_around();
  void fail_gone_peers(const std::vector<int>& gone);
  void fail_expired();
  void withdraw(const TransferPtr& transfer, const Error& error, Done& done);
  std::vector<TransferPtr> pending();
  std::vector<int> unserved_peers();
  bool is_gone(int peer) const;
  bool has_aborted(int peer) const;
  Error abortion(int peer) const;
  bool was_gone_lately(int peer);
  void throw_refusals(int peer);
  void run();
  void sleep(std::uint32_t seen, const Transfer* transfer, const Deadline* deadline);

  Error mismatch(int source, const Message& sent, const Transfer& receive) const;
  Error timeout_of(const Transfer& transfer, const Deadline& deadline) const;
  std::string describe(const Transfer& transfer) const;
  void complete(Done& done);

  Channel& channel(int peer) { return channels_[static_cast<std::size_t>(peer)]; }

  std::shared_ptr<SharedMemory> memory_;
  Membership membership_;
  Failure failure_;
  Bell& bell_;

  std::mutex mutex_;
  std::vector<Channel> channels_;
  Matching matching_;
  std::uint32_t next_id_ = 1;
  std::uint32_t scanned_ = 0;   // the bell's count when the rings were last looked at
  std::optional<Error> ended_;  // why nothing can be posted any more

  std::mutex thread_mutex_;
  std::condition_variable changed_;
  std::vector<TransferPtr> driven_;
  std::thread thread_;
  bool stop_ = false;
};

}  // namespace allhands
