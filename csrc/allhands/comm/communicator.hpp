// A group of ranks, as one of them sees it: one method per collective.
//
// Each checks its arguments, then runs in the calling thread (`run`) or is queued for
// the group's progress thread (`post`), which is started on first use. Operations run
// in the order in which they were issued, whichever way. The arena is made by the first
// operation to run, so a group that is never used costs a few hundred bytes.
//
// Thread-safe, but ranks must agree on the order of operations, which threads that use
// one group at the same time rarely do. Arrays must stay alive until their operation
// has ended.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "allhands/arena/arena.hpp"
#include "allhands/arena/bootstrap.hpp"
#include "allhands/base/buffer.hpp"
#include "allhands/comm/turns.hpp"
#include "allhands/comm/work.hpp"

namespace allhands {

class Communicator {
 public:
  // One operation, ready to run.
  using Operation = std::function<void(Arena&, const Limits&)>;

  // No communication. Throws Backend where a peer is on another host.
  Communicator(Membership membership, const Token& token);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator();

  int rank() const { return membership_.rank; }
  int size() const { return membership_.size(); }
  const std::string& name() const { return membership_.name; }

  // Each of these checks and returns the operation; nothing has happened yet. Throws
  // Value or Type naming what is wrong.
  Operation all_reduce(const Buffer& output, const Buffer& input, ReduceOp op,
                       double factor) const;
  Operation broadcast(const Buffer& buffer, int root) const;
  Operation all_gather(std::vector<Buffer> outputs, const Buffer& input) const;
  // `output` holds the ranks' inputs one after the other.
  Operation all_gather_single(const Buffer& output, const Buffer& input) const;
  Operation barrier() const;

  // Runs it now, in this thread.
  void run(const Operation& operation, Limits limits);
  // Queues it.
  std::shared_ptr<Work> post(Operation operation, Deadline deadline);

  // Breaks the group for every rank; what waits in it ends. From any thread. Takes up
  // to a second if the group's rank 0 has not called anything yet.
  void abort(const std::string& reason);
  // Waits for queued operations until `limits` end, ends those that are left, and tells
  // the peers that this rank is gone. Further calls throw. Idempotent. Throws
  // Interrupted, once all that is done.
  void close(const Limits& limits);
  // True in a child that the group's process forked: it has the memory but not the
  // threads, so it must neither use this object nor destroy it.
  bool is_forked() const;

 private:
  struct Entry {
    Turns::Ticket ticket;
    Operation operation;
    Deadline deadline;
    std::shared_ptr<Work> work;
  };

  void perform(const Operation& operation, const Limits& limits);
  void open_arena(const Limits& limits);
  void make_arena(const Limits& limits);
  void open_to_abort();
  void break_off(const Error& error);
  bool wait_until_idle(const Limits& limits) const;
  void progress();
  void process(Entry& entry);

  const Membership membership_;
  const Token token_;
  const int owner_pid_;  // a forked child must not end its parent's group
  Turns turns_;
  std::atomic<bool> stop_ = false;

  std::mutex arena_mutex_;  // guards the two below; taken only off the fast path
  std::unique_ptr<Arena> arena_;
  std::optional<Error> broken_;  // failed or closed
  std::atomic<bool> is_open_ = false;
  std::unique_ptr<SegmentServer> server_;

  std::mutex queue_mutex_;  // guards the queue and the start of the thread
  std::condition_variable queued_;
  std::deque<Entry> queue_;
  std::thread thread_;
  bool is_closing_ = false;
};

}  // namespace allhands
