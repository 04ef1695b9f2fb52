#include "allhands/comm/communicator.hpp"

#include <unistd.h>

#include <string>

#include "allhands/base/error.hpp"

namespace allhands {
namespace {

constexpr std::chrono::seconds kAbortGrace{1};

}  // namespace

Communicator::Communicator(Membership membership, const Token& token)
    : membership_(std::move(membership)), token_(token), owner_pid_(getpid()) {
  const auto self = static_cast<std::size_t>(membership_.rank);
  for (int peer = 0; peer < size(); ++peer)
    if (membership_.peers[static_cast<std::size_t>(peer)].host !=
        membership_.peers[self].host)
      throw Error(ErrorKind::Backend,
                  "group '" + name() + "': rank " + std::to_string(peer) +
                      " is on another host than rank " + std::to_string(rank()) +
                      " (this process); the native engine reaches one host only");
}

Communicator::~Communicator() { close({Deadline::after(Deadline::Duration::zero())}); }

void Communicator::run(const Operation& operation, Limits limits) {
  limits.stop = &stop_;
  const Turns::Ticket ticket = turns_.take();
  try {
    turns_.wait(ticket, limits);
  } catch (const Error& error) {
    break_off(error);  // peers would run what this rank has skipped
    throw;
  }
  const Turn turn{turns_};
  perform(operation, limits);
}

std::shared_ptr<Work> Communicator::post(Operation operation, Deadline deadline) {
  auto work = std::make_shared<Work>();
  {
    const std::lock_guard lock(queue_mutex_);
    if (is_closing_)
      throw Error(ErrorKind::Backend, "group '" + name() + "' was destroyed");
    queue_.push_back({turns_.take(), std::move(operation), deadline, work});
    if (!thread_.joinable()) thread_ = std::thread([this] { progress(); });
  }
  queued_.notify_one();
  return work;
}

void Communicator::perform(const Operation& operation, const Limits& limits) {
  if (!is_open_.load(std::memory_order_acquire)) open_arena(limits);
  try {
    operation(*arena_, limits);
  } catch (const Error& error) {
    // A mismatch leaves every rank at the same point; anything else does not.
    if (error.kind() != ErrorKind::Mismatch) arena_->fail(error);
    throw;
  } catch (const std::exception& error) {
    arena_->fail(Error(ErrorKind::Backend, error.what()));
    throw;
  }
}

void Communicator::open_arena(const Limits& limits) {
  {
    const std::lock_guard lock(arena_mutex_);
    if (broken_) throw *broken_;
  }
  try {
    make_arena(limits);
  } catch (const Error& error) {
    break_off(error);
    throw;
  }
}

void Communicator::make_arena(const Limits& limits) {
  std::shared_ptr<SharedMemory> memory;
  std::unique_ptr<SegmentServer> server;
  if (rank() == 0) {
    memory = SharedMemory::create(Layout(size()).total_bytes());
    if (size() > 1)
      server = std::make_unique<SegmentServer>(*memory, membership_, token_);
  } else {
    memory = fetch_segment(membership_, token_, limits);
    memory->close_fd();
  }
  const std::lock_guard lock(arena_mutex_);
  arena_ = std::make_unique<Arena>(std::move(memory), membership_);
  server_ = std::move(server);
  if (broken_) arena_->fail(*broken_);
  is_open_.store(true, std::memory_order_release);
}

void Communicator::break_off(const Error& error) {
  const ErrorKind kind =
      error.kind() == ErrorKind::Interrupted ? ErrorKind::Backend : error.kind();
  const std::lock_guard lock(arena_mutex_);
  if (!broken_)
    broken_ = Error(kind, "group '" + name() + "' is broken since: " + error.what(),
                    error.ranks());
  if (arena_) arena_->fail(*broken_);
}

void Communicator::abort(const std::string& reason) {
  if (!is_open_.load(std::memory_order_acquire)) open_to_abort();
  break_off(Error(ErrorKind::Backend,
                  "rank " + std::to_string(rank()) + " aborted it: " + reason));
}

// Peers may wait in an arena that this rank has not entered yet; they see only what is
// written there.
void Communicator::open_to_abort() {
  const Limits limits = {Deadline::after(kAbortGrace), nullptr, &stop_};
  try {
    turns_.wait(turns_.take(), limits);
    const Turn turn{turns_};
    if (!is_open_.load(std::memory_order_acquire)) make_arena(limits);
  } catch (const Error&) {
    // This rank's own call is opening it and will write the failure; or nobody is
    // there.
  }
}

void Communicator::progress() {
  while (true) {
    std::unique_lock lock(queue_mutex_);
    queued_.wait(lock, [this] { return is_closing_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Entry entry = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    process(entry);
  }
}

void Communicator::process(Entry& entry) {
  // The deadline counts from when the call was issued; nobody to interrupt us here.
  const Limits limits = {entry.deadline, nullptr, &stop_};
  std::exception_ptr error;
  try {
    turns_.wait(entry.ticket, {Deadline::after(Deadline::Duration::max())});
    const Turn turn{turns_};
    perform(entry.operation, limits);
  } catch (...) {
    error = std::current_exception();
  }
  entry.operation = nullptr;  // before the caller may free its arrays
  entry.work->complete(error);
}

bool Communicator::is_forked() const { return getpid() != owner_pid_; }

void Communicator::close(const Limits& limits) {
  if (is_forked()) return;
  bool is_interrupted = false;
  {
    const std::lock_guard lock(queue_mutex_);
    is_closing_ = true;
  }
  queued_.notify_all();
  if (thread_.joinable()) {
    is_interrupted = !wait_until_idle(limits);
    stop_ = true;
    thread_.join();
  }
  const std::lock_guard lock(arena_mutex_);
  is_open_ = false;
  if (arena_) arena_->leave();
  server_.reset();
  if (!broken_)
    broken_ = Error(ErrorKind::Backend, "group '" + name() + "' was destroyed");
  if (is_interrupted) throw Error(ErrorKind::Interrupted, "interrupted");
}

// False: interrupted.
bool Communicator::wait_until_idle(const Limits& limits) const {
  for (int ms = 1; !turns_.is_idle() && !limits.deadline.is_expired(); ++ms) {
    const bool is_time_to_look = ms % kInterruptSliceMs == 0;
    if (is_time_to_look && limits.interrupt != nullptr && limits.interrupt())
      return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace allhands
