#include "allhands/comm/communicator.hpp"

#include <unistd.h>

#include <algorithm>
#include <string>

#include "allhands/arena/collectives.hpp"
#include "allhands/base/error.hpp"
#include "allhands/comm/run.hpp"
#include "allhands/transport/shm/shm_transport.hpp"

namespace allhands {
namespace {

constexpr std::chrono::seconds kOpeningTime{1};  // it takes milliseconds
constexpr Deadline::Duration kParting = std::chrono::seconds(1);

}  // namespace

Communicator::Communicator(Membership membership, const Token& token,
                           MakeTuning make_tuning, const LateNotice& late_notice)
    : membership_(std::move(membership)),
      token_(token),
      make_tuning_(std::move(make_tuning)),
      late_notice_(late_notice),
      owner_pid_(getpid()),
      queue_(turns_, [this](Turns::Ticket ticket, const Operation& operation,
                            Deadline deadline, const Limits* waiter) {
        run_queued(ticket, operation, deadline, waiter);
      }) {
  const auto self = static_cast<std::size_t>(membership_.rank);
  for (int peer = 0; peer < size(); ++peer)
    if (membership_.peers[static_cast<std::size_t>(peer)].host !=
        membership_.peers[self].host)
      throw Error(ErrorKind::Backend,
                  "group '" + name() + "': rank " + std::to_string(peer) +
                      " is on another host than rank " + std::to_string(rank()) +
                      " (this process); the native engine reaches one host only");
}

Communicator::~Communicator() {
  try {
    close({Deadline::after(Deadline::Duration::zero())});
  } catch (const Error&) {
    // Messages were lost; close() is how to hear of it.
  }
}

void Communicator::check(const Operation& operation) const {
  operation.collective->check(operation, rank(), size());
}

void Communicator::run(const Operation& operation, const Limits& given) {
  const Limits limits = {given.deadline, given.interrupt, &stop_};
  const Turns::Ticket ticket = take_turn(limits);
  const Turn turn(turns_);
  Arena& arena = opened(limits);
  try {
    allhands::run(arena, ticket, operation, limits);
  } catch (...) {
    break_by_current_exception();
    throw;
  }
}

void Communicator::run_queued(Turns::Ticket ticket, const Operation& operation,
                              Deadline deadline, const Limits* waiter) {
  // The deadline counts from when the call was issued.
  const Limits limits = {deadline, waiter ? waiter->interrupt : nullptr, &stop_};
  // What opens the group cannot change threads.
  const bool is_ready = is_ready_.load(std::memory_order_acquire);
  if (waiter != nullptr && !is_ready) throw Suspended{WaitEnd::None};
  Arena& arena = opened(limits);
  try {
    allhands::run(arena, ticket, operation, limits, waiter);
  } catch (const Suspended&) {
    throw;
  } catch (...) {
    break_by_current_exception();
    throw;
  }
}

std::shared_ptr<Work> Communicator::post(Operation operation, Deadline deadline) {
  return queue_.post(std::move(operation), deadline);
}

void Communicator::wait(Work& work, const Limits& limits) { queue_.wait(work, limits); }

std::shared_ptr<SharedArray> Communicator::empty_shared(
    DType dtype, const std::vector<std::size_t>& shape, const Limits& given) {
  const Limits limits = {given.deadline, given.interrupt, &stop_};
  SharedArrayMaker maker(membership_, token_, dtype, shape);
  {
    const Turns::Ticket ticket = take_turn(limits);
    const Turn turn(turns_);
    Arena& arena = opened(limits);
    try {
      maker.run(arena, ticket, limits);
    } catch (...) {
      break_by_current_exception();
      throw;
    }
  }
  return maker.result();
}

std::byte* Communicator::peer_data(const Buffer& buffer, int peer) const {
  check_peer("peer_array", peer);
  std::optional<SharedRegion> region;
  {
    const std::lock_guard lock(open_mutex_);
    if (is_open_) region = arena_->shared_arrays()->find(buffer);
  }
  if (!region)
    throw Error(ErrorKind::Value,
                "peer_array: the array is not in the shared memory of group '" +
                    name() +
                    "'; pass what empty_shared made on this group, or a contiguous "
                    "view of it");
  const auto* mine = static_cast<const std::byte*>(buffer.data);
  return region->part(peer) + (mine - region->part(rank()));
}

Turns::Ticket Communicator::take_turn(const Limits& limits) {
  if (!is_ready_.load(std::memory_order_acquire)) open_before_turn(limits);
  const Turns::Ticket ticket = turns_.take();
  try {
    turns_.wait(ticket, limits);
  } catch (const Error& error) {
    break_off(error);
    throw;
  }
  return ticket;
}

Arena& Communicator::opened(const Limits& limits) {
  try {
    if (!is_ready_.load(std::memory_order_acquire)) open(limits);
  } catch (const Error& error) {
    break_off(error);  // peers would run what this rank has skipped
    throw;
  }
  return *arena_;
}

// Of an operation that the peers do not see ended.
void Communicator::break_by_current_exception() {
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

void Communicator::open(const Limits& limits) {
  const std::lock_guard lock(open_mutex_);
  if (is_closed_ || failure_.error()) throw refusal();
  if (is_open_) return;
  const std::size_t arena_bytes = Layout(size()).total_bytes();
  const auto prepare = [this](SharedMemory& memory) {
    Arena::prepare(memory, size(), make_tuning_());
  };
  adopt(open_segment(arena_bytes + ShmTransport::memory_bytes(size()), prepare,
                     membership_, token_, limits));
}

void Communicator::adopt(Segment segment) {
  arena_ = std::make_unique<Arena>(segment.memory, membership_, late_notice_);
  auto transport = std::make_unique<ShmTransport>(
      segment.memory, segment.memory->data() + Layout(size()).total_bytes(),
      membership_, arena_->tuning());
  engine_ = std::make_unique<ProgressEngine>(
      std::move(transport), membership_, arena_->tuning(),
      ServedGroup{[this] { return failure(); },
                  [this](const Error& error) { tell(error); }},
      late_notice_);
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
}

// Of an open group: its ranks that share the arena learn of it, too.
void Communicator::tell(const Error& error) {
  note(error);
  arena_->fail(error);
}

// What broke the group, of an open one: as a peer told it, if one did.
std::optional<Error> Communicator::failure() const {
  if (auto told = arena_->told_failure()) return told;
  return failure_.error();
}

// What a call gets that comes too late.
Error Communicator::refusal() const {
  if (const auto error = failure_.error())
    return Error(error->kind(),
                 "group '" + name() + "' is broken since: " + error->what(),
                 error->ranks());
  return Error(ErrorKind::Backend, "group '" + name() + "' was destroyed");
}

void Communicator::break_off(const Error& error) {
  note(error);
  const std::lock_guard lock(open_mutex_);
  if (arena_) arena_->fail(error);
}

void Communicator::fail(const Error& error) {
  // Peers may wait where this rank has not been yet; they see only what is written
  // there.
  try {
    if (!is_ready_) open({Deadline::after(kOpeningTime), nullptr, &stop_});
  } catch (const Error&) {
    // Broken, closed, or out of memory: then it is broken for this rank at least.
  }
  break_off(error);
  bool is_open;
  {
    const std::lock_guard lock(open_mutex_);
    is_open = is_open_;
  }
  if (is_open) engine_->leave(refusal(), Presence::Aborted);
}

void Communicator::check_peer(const char* op, int peer) const {
  if (peer < 0 || peer >= size())
    throw Error(ErrorKind::Value, std::string(op) + ": the peer must be in [0, " +
                                      std::to_string(size()) + "), got " +
                                      std::to_string(peer));
}

void Communicator::send(const Buffer& buffer, int to, std::int64_t tag,
                        const Limits& limits) {
  check_peer("send", to);
  if (!is_ready_.load(std::memory_order_acquire)) open(limits);
  engine_->send(buffer, to, tag, limits);
}

int Communicator::recv(const Buffer& buffer, int from, std::int64_t tag,
                       const Limits& limits) {
  if (from != kAnySource) check_peer("recv", from);
  if (!is_ready_.load(std::memory_order_acquire)) open(limits);
  return engine_->recv(buffer, from, tag, limits);
}

TransferPtr Communicator::post_send(const Buffer& buffer, int to, std::int64_t tag,
                                    const Limits& limits) {
  check_peer("send", to);
  if (!is_ready_.load(std::memory_order_acquire)) open(limits);
  return engine_->post_send(buffer, to, tag, limits.deadline);
}

TransferPtr Communicator::post_recv(const Buffer& buffer, int from, std::int64_t tag,
                                    const Limits& limits) {
  if (from != kAnySource) check_peer("recv", from);
  if (!is_ready_.load(std::memory_order_acquire)) open(limits);
  return engine_->post_recv(buffer, from, tag, limits.deadline);
}

bool Communicator::is_forked() const { return getpid() != owner_pid_; }

void Communicator::note_failure(std::string reason) {
  const std::lock_guard lock(open_mutex_);
  own_failure_ = std::move(reason);
}

void Communicator::close(const Limits& limits) {
  if (is_forked()) return;
  if (is_own_thread())
    throw Error(
        ErrorKind::Unsupported,
        "group '" + name() +
            "' cannot be destroyed by a callback of one of its operations, which "
            "that would wait for; let the callback tell another thread");
  queue_.close();
  // A call of another thread has a moment, what was queued all the time there is.
  const Limits soon = {Deadline::after(std::min(limits.deadline.remaining(), kParting)),
                       limits.interrupt};
  const WaitEnd end = turns_.wait_until_idle(queue_.is_busy() ? limits : soon);
  const bool is_interrupted = end == WaitEnd::Interrupted;
  stop_ = true;
  queue_.join();
  turns_.wait_until_idle({Deadline::after(kParting)});  // who is in a call notices
  leave(is_interrupted ? Limits{Deadline::after(Deadline::Duration::zero())} : limits);
  if (is_interrupted) throw interrupted();
}

// This rank never used the group and leaves: peers that do use it shall know.
void Communicator::join_those_who_wait() {
  if (size() == 1) return;
  try {
    auto theirs = find_segment(membership_, token_, {Deadline::after(kOpeningTime)});
    if (theirs) adopt(std::move(*theirs));
  } catch (const Error&) {
    // Then they learn of it as of any rank that does not come.
  }
}

void Communicator::leave(const Limits& limits) {
  const std::lock_guard lock(open_mutex_);
  if (!is_open_ && !is_closed_ && !failure_.error()) join_those_who_wait();
  is_closed_ = true;
  is_ready_ = false;
  if (!std::exchange(is_open_, false)) return;
  std::optional<Error> lost;
  try {
    engine_->flush(limits);
  } catch (const Error& error) {
    lost = error;
  }
  engine_->leave(refusal());
  engine_->join();
  if (!own_failure_.empty())
    arena_->fail(Error(ErrorKind::RankFailed,
                       membership_.describe(rank()) + " ended by " + own_failure_,
                       {rank()}));
  arena_->leave();
  server_.reset();
  memory_->close_fd();  // the mapping stays as long as this object
  if (lost) throw *lost;
}

}  // namespace allhands
