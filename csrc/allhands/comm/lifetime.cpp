// The life of a Communicator: how it opens, what breaks it, how it closes.
#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "allhands/base/error.hpp"
#include "allhands/base/seconds.hpp"
#include "allhands/comm/communicator.hpp"
#include "allhands/transport/routed_transport.hpp"
#include "allhands/transport/shm/shm_transport.hpp"

namespace allhands {
namespace {

constexpr std::chrono::seconds kOpeningTime{1};  // it takes milliseconds
constexpr Deadline::Duration kParting = std::chrono::seconds(1);

bool is_interruption(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& thrown) {
    return thrown.kind() == ErrorKind::Interrupted;
  } catch (...) {
    return false;
  }
}

}  // namespace

// Breaks the group because of an operation that the peers do not see end. A forked
// child that unwinds breaks nothing: its parent goes on.
void Communicator::break_by_current_exception() {
  if (is_forked()) return;
  try {
    throw;
  } catch (const Error& error) {
    // A mismatch leaves every rank at the same point; anything else does not.
    if (error.kind() != ErrorKind::Mismatch) tell(error);
  } catch (const std::exception& error) {
    tell(Error(ErrorKind::Backend, error.what()));
  }
}

// A rank that lacked something, such as a file descriptor, has skipped no operation yet
// and may call again.
void Communicator::open_before_turn(const Limits& limits) {
  try {
    open(limits);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Backend) break_off(error);
    throw;
  }
}

// Holds no lock while it waits for the memory: an interrupt may close or break the
// group, and so may another thread.
void Communicator::open(const Limits& given) {
  const Limits limits = {given.deadline, given.interrupt, &is_unwanted_};
  std::unique_lock lock(open_mutex_);
  wait_for_opener(limits, lock);
  if (is_closed_ || failure_.error()) throw refusal();
  if (is_open_) return;
  opener_ = std::this_thread::get_id();
  lock.unlock();
  std::optional<Segment> segment;
  std::exception_ptr error;
  try {
    segment = local_segment(limits);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  opener_ = {};
  opened_.notify_all();
  if (error && (is_interruption(error) || !failure_.error()))
    std::rethrow_exception(error);
  if (error || is_closed_) throw refusal();
  adopt(std::move(*segment));
  const std::optional<Error> failure = failure_.error();
  if (!failure) return;
  arena_->fail(*failure);
  lock.unlock();
  engine_->leave(refusal(), Presence::Aborted);
  throw refusal();
}

// Another thread may be opening the group.
void Communicator::wait_for_opener(const Limits& limits,
                                   std::unique_lock<std::mutex>& lock) {
  const std::string call = "first operation on group " + membership_.quoted() + ": ";
  if (opener_ == std::this_thread::get_id())
    throw Error(ErrorKind::Backend,
                call + "a signal's handler calls it within another operation");
  const auto is_free = [this] { return opener_ == std::thread::id(); };
  const WaitEnd end = Wait(limits).sleep_on(opened_, lock, is_free);
  if (end == WaitEnd::Stopped) throw refusal();
  if (end == WaitEnd::Expired)
    throw Error(ErrorKind::Timeout,
                call + "timed out: another thread waits for the group's shared memory");
}

Segment Communicator::local_segment(const Limits& limits) const {
  const int num_local = local_.size();
  const std::size_t arena_bytes = Layout(num_local).total_bytes();
  const auto prepare = [&](SharedMemory& memory) {
    Arena::prepare(memory, num_local, make_tuning_());
    // Before others get it: this rank may be stopped at any time.
    Layout(num_local).header(memory.data()).maker = local_.rank + 1;
  };
  try {
    return open_segment(arena_bytes + ShmTransport::memory_bytes(num_local), prepare,
                        local_, local_token_, limits);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Timeout || error.ranks().empty()) throw;
    throw late_maker(hosts_.local_ranks()[static_cast<std::size_t>(error.ranks()[0])],
                     limits.deadline);
  }
}

// The error if the rank that made the segment does not hand it out in time.
Error Communicator::late_maker(int maker, const Deadline& deadline) const {
  return Error(ErrorKind::Timeout,
               "first operation on group " + membership_.quoted() + ": rank " +
                   std::to_string(rank()) + " (this process) timed out: waited " +
                   seconds(deadline.elapsed()) + " (limit " +
                   seconds(deadline.limit()) + ") for " + membership_.describe(maker) +
                   ", which made the group's shared memory and does not answer",
               {maker});
}

std::unique_ptr<Transport> Communicator::make_transport(const Segment& segment) const {
  auto local = std::make_unique<ShmTransport>(
      segment.memory, segment.memory->data() + Layout(local_.size()).total_bytes(),
      local_, arena_->tuning(), told_departures());
  if (hosts_.num_hosts() == 1) return local;
  auto others = reach_others_(membership_, token_, arena_->tuning(),
                              [&local = *local] { local.wake_self(); });
  return std::make_unique<RoutedTransport>(std::move(local), hosts_.local_ranks(),
                                           size(), std::move(others));
}

void Communicator::adopt(Segment segment) {
  arena_ = std::make_unique<Arena>(segment.memory, membership_, hosts_.local_ranks(),
                                   late_notice_, told_departures(), told_beginnings());
  if (segment.server) arena_->tell_maker();  // it may have adopted an orphan
  engine_ = std::make_unique<ProgressEngine>(
      make_transport(segment), membership_, arena_->tuning(),
      ServedGroup{this, [this] { return failure(); },
                  [this](const Error& error) { tell(error); },
                  &recorder_.num_in_messages()},
      late_notice_);
  if (hosts_.num_hosts() > 1)
    across_hosts_ = std::make_unique<AcrossHosts>(membership_, *arena_, *engine_);
  memory_ = std::move(segment.memory);
  server_ = std::move(segment.server);
  is_open_ = true;
  is_ready_ = true;
  if (failure_.error()) is_ready_ = false;
}

void Communicator::note(const Error& error) {
  const bool is_interrupt = error.kind() == ErrorKind::Interrupted;
  failure_.note(is_interrupt ? Error(ErrorKind::Backend,
                                     membership_.describe(rank()) + " was interrupted")
                             : error);
  is_ready_ = false;
  is_unwanted_ = true;
}

// Notes the failure of an open group; the ranks that share its arena learn of it, too.
void Communicator::tell(const Error& error) {
  arena_->fail(error);  // first, as it takes no memory
  note(error);
}

// What broke an open group; as a peer reported it, if one did.
std::optional<Error> Communicator::failure() const {
  if (auto told = arena_->told_failure()) return told;
  return failure_.error();
}

// The error that a call gets if it comes too late.
Error Communicator::refusal() const {
  if (const auto error = failure_.error())
    return error->retold("group '" + name() + "' is broken since: " + error->what());
  return Error(ErrorKind::Backend, "group '" + name() + "' was destroyed");
}

void Communicator::break_off(const Error& error) {
  if (is_forked()) return;
  note(error);
  const std::lock_guard lock(open_mutex_);
  if (arena_) arena_->fail(error);
}

bool Communicator::is_being_opened() const {
  const std::lock_guard lock(open_mutex_);
  return opener_ != std::thread::id();
}

void Communicator::fail(const Error& error) {
  // A thread that opens the group ends its wait, or tells the peers.
  if (is_being_opened()) note(error);
  // Peers may wait in a segment that this rank has not opened yet; they see only what
  // is written there.
  try {
    if (!is_ready_) open({Deadline::after(kOpeningTime)});
  } catch (const Error&) {
    // The group is broken or closed, or memory ran out: then it is broken at least for
    // this rank.
  }
  break_off(error);
  bool is_open;
  {
    const std::lock_guard lock(open_mutex_);
    is_open = is_open_;
  }
  if (is_open) engine_->leave(refusal(), Presence::Aborted);
}

std::vector<std::pair<int, std::string>> Communicator::endings() {
  // A thread that leaves the group may hold the mutex for a second.
  const std::unique_lock lock(open_mutex_, std::try_to_lock);
  if (!lock.owns_lock() || !is_open_) return {};
  std::vector<std::pair<int, std::string>> found = engine_->endings();
  if (!is_ready_)
    std::erase_if(found, [](const auto& ending) { return ending.second.empty(); });
  return found;
}

bool Communicator::is_forked() const { return process_.is_forked(); }

void Communicator::note_failure(const std::string& reason, std::string cause) {
  Error ending(ErrorKind::RankFailed,
               membership_.describe(rank()) + " ended by " + reason, {rank()});
  ending.set_cause({rank(), std::move(cause)});
  const std::lock_guard lock(open_mutex_);
  ending_ = std::move(ending);
}

std::optional<Error> Communicator::ending() const {
  const std::lock_guard lock(open_mutex_);
  return ending_;
}

void Communicator::tell_ending() {
  const std::lock_guard lock(open_mutex_);
  if (!ending_ || !is_open_) return;
  arena_->fail(*ending_);
  failure_.note(*ending_);
}

void Communicator::check_close() const {
  if (is_in_callback())
    throw Error(
        ErrorKind::Unsupported,
        "group '" + name() +
            "' cannot be destroyed by a callback of one of its operations, which "
            "that would wait for; let the callback tell another thread");
}

void Communicator::close(const Limits& limits) {
  if (is_forked()) return;
  check_close();
  const std::lock_guard closing(closing_mutex_);
  queue_.close();
  // Calls of other threads get a moment; queued operations get all the time there is.
  const Limits soon = {Deadline::after(std::min(limits.deadline.remaining(), kParting)),
                       limits.interrupt};
  bool is_idle = false;
  std::exception_ptr interruption;
  try {
    is_idle = turns_.wait_until_idle(queue_.is_busy() ? limits : soon) == WaitEnd::None;
  } catch (const Error&) {
    if (is_forked()) throw;
    interruption = std::current_exception();
  }
  // Peers learn why this rank leaves before they learn of a call that it breaks off.
  if (!is_idle) tell_ending();
  stop_ = is_unwanted_ = true;
  queue_.join();
  turns_.wait_until_idle({Deadline::after(kParting)});  // threads in a call notice
  leave(interruption ? Limits{Deadline::after(Deadline::Duration::zero())} : limits);
  if (interruption) std::rethrow_exception(interruption);
}

// Stands for "this local rank has left the group", without saying so to others.
std::uint64_t Communicator::departure_key(int rank) const {
  return key_of(derived_token(local_token_, "departure of " + std::to_string(rank)));
}

HasDeparted Communicator::told_departures() const {
  return [this](int rank) {
    return FlightMemory::has_departed(local_.process(rank).pid, departure_key(rank));
  };
}

// By this key watchers recognise ranks of the same group.
std::uint64_t Communicator::record_key() const {
  return key_of(derived_token(token_, "flight record"));
}

HasBegun Communicator::told_beginnings() const {
  return [this](int rank, std::uint64_t sequence) {
    const int theirs = hosts_.local_ranks()[static_cast<std::size_t>(rank)];
    return FlightMemory::num_collectives(local_.process(rank).pid, record_key(),
                                         theirs) >= sequence;
  };
}

// This rank leaves without ever having used the group; peers that use it now must learn
// that.
void Communicator::join_those_who_wait() {
  if (size() == 1) return;
  try {
    // On other hosts they ask this rank itself.
    if (hosts_.num_hosts() > 1)
      return adopt(local_segment({Deadline::after(kOpeningTime)}));
    auto theirs = find_segment(local_, local_token_, {Deadline::after(kOpeningTime)});
    if (theirs) adopt(std::move(*theirs));
  } catch (const Error&) {
    // Then they notice as they do for any rank that does not come.
  }
}

// Refuses calls from now on. Returns whether the group was open.
bool Communicator::end_calls() {
  const std::lock_guard lock(open_mutex_);
  // Peers that come later may find no shared memory in which this rank was.
  if (!is_closed_ && size() > 1 && flight_memory_)
    flight_memory_->note_departure(departure_key(local_.rank));
  if (!is_open_ && !is_closed_ && !failure_.error()) join_those_who_wait();
  is_closed_ = true;
  is_ready_ = false;
  return std::exchange(is_open_, false);
}

// Called without a lock, as callbacks of operations that end here may make calls.
void Communicator::leave(const Limits& limits) {
  if (!end_calls()) return;
  std::optional<Error> lost;
  try {
    engine_->flush(limits);
  } catch (const Error& error) {
    lost = error;
  }
  const std::optional<Error> ending = this->ending();
  if (ending) arena_->fail(*ending);  // first: that is what the engine tells
  engine_->leave(refusal(), ending ? Presence::Aborted : Presence::Left);
  engine_->join();
  arena_->leave();
  server_.reset();
  memory_->close_fd();  // the mapping stays as long as this object
  if (lost) throw *lost;
}

}  // namespace allhands
