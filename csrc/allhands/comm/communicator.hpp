// A group of ranks, as one of them sees it.
//
// A collective whose arguments were checked runs in the calling thread (`run`) or is
// queued for the group's progress thread (`post`), which is started on first use.
// Either way, they run in the order in which they were issued. The arena is made by the
// first operation to run, so a group that is never used costs a few hundred bytes.
//
// This class keeps the facts of the group: the sequence number of each operation (see
// Turns), its descriptor, and what broke the group (see FailureRecord). The arena and
// the engine, which move the bytes, are told the number and the descriptor, and report
// what broke the group.
//
// A group may have ranks on several hosts. The arena serves the ranks of this host. The
// engine reaches these through memory, and the others through the transport that
// `ReachOthers` makes.
//
// Thread-safe, but ranks must agree on the order of operations, which threads that use
// one group at the same time rarely do. Arrays must stay alive until their operation
// has ended.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "allhands/arena/arena.hpp"
#include "allhands/arena/operation.hpp"
#include "allhands/base/buffer.hpp"
#include "allhands/base/fork_mark.hpp"
#include "allhands/base/thread_mark.hpp"
#include "allhands/comm/bootstrap.hpp"
#include "allhands/comm/failure_record.hpp"
#include "allhands/comm/flight_recorder.hpp"
#include "allhands/comm/observer.hpp"
#include "allhands/comm/operation_queue.hpp"
#include "allhands/comm/shared_array.hpp"
#include "allhands/comm/turns.hpp"
#include "allhands/engine/progress_engine.hpp"
#include "allhands/engine/work.hpp"
#include "allhands/hosts/across_hosts.hpp"
#include "allhands/hosts/hosts.hpp"

namespace allhands {

class Communicator {
 public:
  // Called if this rank makes the group's segment; the others wait meanwhile.
  using MakeTuning = std::function<Tuning()>;

  // Makes the transport to the ranks of other hosts, which uses group ranks. The
  // transport calls `wake` for each of its events, from any thread.
  using ReachOthers = std::function<std::unique_ptr<Transport>(
      const Membership&, const Token&, const Tuning&, std::function<void()> wake)>;

  // Does not communicate. The flight recorder keeps `record_length` collectives and as
  // many messages, in `flight_memory` if that is given. Throws Backend if a peer is on
  // another host and there is no way to reach it.
  Communicator(Membership membership, const Token& token, MakeTuning make_tuning,
               const LateNotice& late_notice = {},
               std::size_t record_length = FlightRecorder::kLength,
               ReachOthers reach_others = {},
               std::shared_ptr<FlightMemory> flight_memory = {});
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator();

  int rank() const { return membership_.rank; }
  int size() const { return membership_.size(); }
  const std::string& name() const { return membership_.name; }

  // Tells `observer` of each operation that is issued from now on; null stops that. The
  // observer must outlive this object.
  void observe(Observer* observer) {
    observer_.store(observer, std::memory_order_release);
  }

  // The contents of the flight recorder. May be called from any thread, while
  // operations run, and also after a failure and after close().
  std::vector<FlightEntry> flight_entries();
  // Whether a thread waits for messages here, or for Works of collectives.
  bool has_waiters(bool for_messages) {
    auto& num_waiting =
        for_messages ? recorder_.num_in_messages() : recorder_.num_in_works();
    return num_waiting.load(std::memory_order_relaxed) > 0;
  }

  // Throws Value, Type or Unsupported, naming what is wrong with an operation. In that
  // case nothing has happened.
  void check(const Operation& operation) const;
  // Runs it now, in this thread.
  void run(const Operation& operation, const Limits& limits);
  // An array of this rank in memory that all ranks share, zero at first; collective.
  // Throws like run, and Backend if a rank has no memory for it; the group keeps
  // working.
  std::shared_ptr<SharedArray> empty_shared(DType dtype,
                                            const std::vector<std::size_t>& shape,
                                            const Limits& limits);
  // The address of the peer's counterpart of `buffer`, which lies in a shared array.
  // That memory lives as long as this rank's part. Throws Value for any other buffer.
  std::byte* peer_data(const Buffer& buffer, int peer) const;
  // Queues it.
  std::shared_ptr<Work> post(Operation operation, Deadline deadline);
  // Like Work::wait on a Work that post returned. This thread carries the operation out
  // itself if it has not begun.
  void wait(Work& work, const Limits& limits);
  // Notes that the result is needed, but that no thread will wait for it.
  void hurry(const Work& work) { queue_.hurry(work); }
  // Notes that a thread will wait for it, but not at once.
  void postpone(const Work& work) { queue_.postpone(work); }

  // Point-to-point. Tags are any numbers; `from` may be kAnySource, the tag to receive
  // kAnyTag. Throws Value for a bad peer, and whatever the ProgressEngine's functions
  // of the same names throw.
  void send(const Buffer& buffer, int to, std::int64_t tag, const Limits& limits);
  int recv(const Buffer& buffer, int from, std::int64_t tag, const Limits& limits);
  // Returns false, and nothing was sent, if the message would have to wait or is
  // observed. `limits` apply to the opening of the group.
  bool send_at_once(const Buffer& buffer, int to, std::int64_t tag,
                    const Limits& limits);
  // These return at once; engine() completes the transfer.
  TransferPtr post_send(const Buffer& buffer, int to, std::int64_t tag,
                        const Limits& limits);
  TransferPtr post_recv(const Buffer& buffer, int from, std::int64_t tag,
                        const Limits& limits, Fit fit = Fit::Exact);
  // Like post_recv, but waits for the end of the transfer.
  TransferPtr recv_fit(const Buffer& buffer, int from, std::int64_t tag,
                       const Limits& limits, Fit fit);
  // See ProgressEngine; `limits` apply to the opening of the group.
  TransferPtr probe_now(int from, std::int64_t tag, const Limits& limits);
  // Exists once something was posted.
  ProgressEngine& engine() { return *engine_; }

  // The ranks that have aborted the group, each with what it told; and, unless the
  // group is broken, those that have died, which told nothing. Found out a moment ago.
  // Empty if the group is not open.
  std::vector<std::pair<int, std::string>> endings();
  // Breaks the group for every rank, with this error: waits in the group end, and each
  // further call throws. May be called from any thread.
  void fail(const Error& error);
  // Notes that this rank is about to leave because it failed. close() will tell the
  // peers that `reason` ended it, and they throw RankFailed with that reason and with
  // `cause`.
  void note_failure(const std::string& reason, std::string cause);
  // Throws Unsupported where close() would: in a callback of the group's own.
  void check_close() const;
  // Waits for queued operations and unreceived messages until `limits` end, ends those
  // that are left, and tells the peers that this rank is gone. Further calls throw.
  // Once all that is done, it throws Timeout if messages were lost, and Interrupted.
  // Idempotent.
  void close(const Limits& limits);
  // True in a child that the group's process forked: it has the memory but not the
  // threads, so it must neither use this object nor destroy it.
  bool is_forked() const;
  // Whether this thread runs a callback of the group, for which close() would wait.
  bool is_in_callback() const { return ThreadMark::is_set(this); }

 private:
  Observer* observer() const { return observer_.load(std::memory_order_acquire); }
  OperationRecord collective_record(Turns::Ticket ticket, const Descriptor& descriptor,
                                    bool is_async) const;
  OperationRecord message_record(const char* op, const Buffer& buffer, int peer,
                                 std::int64_t tag, bool is_async) const;

  template <class Describe>
  Turns::Ticket take_ticket(const Limits& limits, Describe describe);
  void carry_out(Turns::Ticket ticket, const Operation& operation, const Limits& limits,
                 bool may_suspend);
  // Runs body() in the ticket's turn, with the group open.
  template <class Body>
  void run_in_turn(Turns::Ticket ticket, const Limits& limits, Body body);
  void wait_for_turn(Turns::Ticket ticket, const Limits& limits);
  void open_before_turn(const Limits& limits);
  void ensure_open(const Limits& limits);
  void run_queued(const OperationQueue::Entry& entry, const Limits* waiter);
  template <class Post>
  TransferPtr post_recorded(MessageOp op, const Buffer& buffer, int peer,
                            std::int64_t tag, bool is_async, Post post);
  TransferPtr begin_recv(const Buffer& buffer, int from, std::int64_t tag,
                         const Limits& limits, Fit fit, bool is_async);
  void break_by_current_exception();
  void open(const Limits& given);
  void wait_for_opener(const Limits& limits, std::unique_lock<std::mutex>& lock);
  bool is_being_opened() const;
  std::unique_ptr<Transport> make_transport(const Segment& segment) const;
  Segment local_segment(const Limits& limits) const;
  Error late_maker(int maker, const Deadline& deadline) const;
  void adopt(Segment segment);
  std::uint64_t departure_key(int rank) const;
  std::uint64_t record_key() const;
  HasDeparted told_departures() const;
  HasBegun told_beginnings() const;
  void join_those_who_wait();
  void check_peer(const char* op, int peer) const;
  [[noreturn]] void throw_out_of_reach() const;
  void note(const Error& error);
  void tell(const Error& error);
  std::optional<Error> failure() const;
  Error refusal() const;
  std::optional<Error> ending() const;
  void tell_ending();
  void break_off(const Error& error);
  bool end_calls();
  void leave(const Limits& limits);

  const Membership membership_;
  const Token token_;
  const Hosts hosts_;
  const Membership local_;   // the ranks of this host, by local rank
  const Token local_token_;  // of their shared segment
  const MakeTuning make_tuning_;
  const ReachOthers reach_others_;
  const LateNotice late_notice_;
  const ForkMark process_;  // a forked child must not end its parent's group
  Turns turns_;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> is_unwanted_ = false;  // the group is broken or being closed

  std::atomic<Observer*> observer_ = nullptr;
  FailureRecord failure_;
  const std::shared_ptr<FlightMemory> flight_memory_;  // null: there is none
  FlightRecorder recorder_;
  // Open, not broken and not closed: an operation may begin.
  std::atomic<bool> is_ready_ = false;

  std::recursive_mutex closing_mutex_;  // held by close(), which an interrupt may call
  mutable std::mutex open_mutex_;  // guards what follows; not taken while is_ready_
  std::condition_variable opened_;
  std::thread::id opener_;  // the thread that waits for the memory; none: id()
  bool is_open_ = false;
  bool is_closed_ = false;
  std::optional<Error> ending_;  // why this rank leaves; none: in peace
  std::shared_ptr<SharedMemory> memory_;
  std::unique_ptr<SegmentServer> server_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<ProgressEngine> engine_;
  std::unique_ptr<AcrossHosts> across_hosts_;  // null: all ranks are on one

  OperationQueue queue_;
};

}  // namespace allhands
