#include "allhands/comm/communicator.hpp"

#include <algorithm>
#include <string>

#include "allhands/arena/collectives.hpp"
#include "allhands/base/counted.hpp"
#include "allhands/base/error.hpp"
#include "allhands/comm/run.hpp"
#include "allhands/comm/segment_protocol.hpp"

namespace allhands {
namespace {

// The token of this host's ranks. Several hosts may in fact be one machine, on which
// socket names are visible to all of them, so each host needs a token of its own.
Token local_token(const Token& group, const Membership& members, const Hosts& hosts) {
  if (hosts.num_hosts() == 1) return group;
  return derived_token(group, "host " + members.process(members.rank).host.text());
}

}  // namespace

Communicator::Communicator(Membership membership, const Token& token,
                           MakeTuning make_tuning, const LateNotice& late_notice,
                           std::size_t record_length, ReachOthers reach_others,
                           std::shared_ptr<FlightMemory> flight_memory)
    : membership_(std::move(membership)),
      token_(token),
      hosts_(membership_),
      local_(on_this_host(membership_)),
      local_token_(local_token(token, membership_, hosts_)),
      make_tuning_(std::move(make_tuning)),
      reach_others_(std::move(reach_others)),
      late_notice_(late_notice),
      flight_memory_(std::move(flight_memory)),
      recorder_(record_length, flight_memory_, membership_, record_key()),
      queue_(membership_.name, this, turns_,
             [this](const OperationQueue::Entry& entry, const Limits* waiter) {
               run_queued(entry, waiter);
             }) {
  if (hosts_.num_hosts() > 1 && !reach_others_) throw_out_of_reach();
}

void Communicator::throw_out_of_reach() const {
  int peer = 0;
  while (hosts_.is_local(peer)) ++peer;
  throw Error(ErrorKind::Backend,
              "group " + membership_.quoted() + ": rank " + std::to_string(peer) +
                  " is on another host than rank " + std::to_string(rank()) +
                  " (this process), which listens to no other host");
}

Communicator::~Communicator() {
  try {
    close({Deadline::after(Deadline::Duration::zero())});
  } catch (const Error&) {
    // Messages were lost. A caller who wants to know calls close().
  }
}

void Communicator::check(const Operation& operation) const {
  operation.collective->check(operation, rank(), size());
}

// Keeps the operation on record while it opens the group.
template <class Describe>
Turns::Ticket Communicator::take_ticket(const Limits& limits, Describe describe) {
  if (!is_ready_.load(std::memory_order_acquire)) [[unlikely]] {
    const bool is_refused = stop_ || failure_.error();
    FlightEnd end(is_refused ? nullptr : recorder_.begin(turns_.next(), describe()));
    open_before_turn(limits);
    end.release();  // the operation goes on with it
  }
  return turns_.take();
}

void Communicator::run(const Operation& operation, const Limits& given) {
  const Limits limits = {given.deadline, given.interrupt, &stop_};
  const auto run = [&](Turns::Ticket ticket) {
    run_in_turn(ticket, limits, [&] {
      FlightEnd end(
          recorder_.begin(ticket, operation.collective->descriptor(operation)));
      carry_out(ticket, operation, limits, false);
      end.return_from();
    });
  };
  Observer* const watching = observer();
  const auto describe = [&] { return operation.collective->descriptor(operation); };
  if (watching == nullptr) [[likely]]
    return run(take_ticket(limits, describe));
  // This may throw, so it comes before a ticket is taken: none is lost.
  const Descriptor descriptor = describe();
  const Turns::Ticket ticket = take_ticket(limits, describe);
  observe_run(*watching, collective_record(ticket, descriptor, false),
              [&] { run(ticket); });
}

// An operation between hosts cannot change threads.
void Communicator::carry_out(Turns::Ticket ticket, const Operation& operation,
                             const Limits& limits, bool may_suspend) {
  if (!across_hosts_) [[likely]]
    return allhands::run(*arena_, ticket, operation, limits, may_suspend);
  if (may_suspend) throw Suspended{};
  across_hosts_->run(ticket, operation, limits);
}

template <class Body>
void Communicator::run_in_turn(Turns::Ticket ticket, const Limits& limits, Body body) {
  wait_for_turn(ticket, limits);
  const Turn turn(turns_);
  ensure_open(limits);
  try {
    body();
  } catch (...) {
    break_by_current_exception();
    throw;
  }
}

void Communicator::run_queued(const OperationQueue::Entry& entry,
                              const Limits* waiter) {
  const Operation& operation = entry.operation;
  // The deadline counts from when the call was issued.
  const Limits limits = {entry.deadline, waiter ? waiter->interrupt : nullptr, &stop_};
  // An operation that opens the group cannot change threads.
  const bool is_ready = is_ready_.load(std::memory_order_acquire);
  if (waiter != nullptr && !is_ready) throw Suspended{};
  FlightEnd end(recorder_.begin(
      entry.ticket, operation.collective->descriptor(operation), true, entry.issued));
  ensure_open(limits);
  try {
    carry_out(entry.ticket, operation, limits, waiter != nullptr);
    end.succeed();
  } catch (const Suspended&) {
    end.release();
    throw;
  } catch (...) {
    break_by_current_exception();
    throw;
  }
}

std::shared_ptr<Work> Communicator::post(Operation operation, Deadline deadline) {
  Observer* const watching = observer();
  if (watching == nullptr) return queue_.post(std::move(operation), deadline).work;
  const Descriptor descriptor = operation.collective->descriptor(operation);
  auto [ticket, work] = queue_.post(std::move(operation), deadline);
  observe_end(*watching, watching->before(collective_record(ticket, descriptor, true)),
              *work);
  return work;
}

void Communicator::wait(Work& work, const Limits& limits) {
  const Counted counted(recorder_.num_in_works());
  queue_.wait(work, limits);
}

std::shared_ptr<SharedArray> Communicator::empty_shared(
    DType dtype, const std::vector<std::size_t>& shape, const Limits& given) {
  if (hosts_.num_hosts() > 1)
    throw Error(ErrorKind::Backend,
                "empty_shared: the ranks of group '" + name() + "' are on " +
                    std::to_string(hosts_.num_hosts()) +
                    " hosts, which share no memory; make a group of the ranks of each "
                    "host, for instance with new_subgroups(), and the arrays there");
  const Limits limits = {given.deadline, given.interrupt, &stop_};
  SharedArrayMaker maker(membership_, token_, dtype, shape);
  const Turns::Ticket ticket = take_ticket(limits, [&] { return maker.descriptor(); });
  std::shared_ptr<SharedArray> array;
  const auto make = [&] {
    run_in_turn(ticket, limits, [&] {
      FlightEnd end(recorder_.begin(ticket, maker.descriptor()));
      maker.run(*arena_, ticket, limits);
      end.return_from();
    });
    array = maker.result();
  };
  if (Observer* const watching = observer())
    observe_run(*watching, collective_record(ticket, maker.descriptor(), false), make);
  else
    make();
  return array;
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

void Communicator::wait_for_turn(Turns::Ticket ticket, const Limits& limits) {
  try {
    if (!turns_.is_turn(ticket)) queue_.go_on_before(ticket);
    turns_.wait(ticket, limits);
  } catch (const Error& error) {
    break_off(error);
    throw;
  }
}

void Communicator::ensure_open(const Limits& limits) {
  try {
    if (!is_ready_.load(std::memory_order_acquire)) open(limits);
  } catch (const Error& error) {
    break_off(error);  // peers would run what this rank has skipped
    throw;
  }
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
  FlightEnd end(recorder_.begin_message(MessageOp::Send, buffer, to, tag, false));
  if (!is_ready_.load(std::memory_order_acquire)) open(limits);
  if (Observer* const watching = observer()) [[unlikely]]
    observe_run(*watching, message_record("send", buffer, to, tag, false),
                [&] { engine_->send(buffer, to, tag, limits); });
  else
    engine_->send(buffer, to, tag, limits);
  end.return_from();
}

// Recorded once it has gone: what did not go is recorded when it is posted.
bool Communicator::send_at_once(const Buffer& buffer, int to, std::int64_t tag,
                                const Limits& limits) {
  check_peer("send", to);
  if (!is_ready_.load(std::memory_order_acquire)) open(limits);
  if (observer() != nullptr || !engine_->send_at_once(buffer, to, tag)) return false;
  FlightEnd end(recorder_.begin_message(MessageOp::Send, buffer, to, tag, false));
  end.return_from();
  return true;
}

int Communicator::recv(const Buffer& buffer, int from, std::int64_t tag,
                       const Limits& limits) {
  if (from != kAnySource) check_peer("recv", from);
  FlightEnd end(recorder_.begin_message(MessageOp::Recv, buffer, from, tag, false));
  if (!is_ready_.load(std::memory_order_acquire)) open(limits);
  int source = kAnySource;
  if (Observer* const watching = observer()) [[unlikely]]
    observe_run(*watching, message_record("recv", buffer, from, tag, false),
                [&] { source = engine_->recv(buffer, from, tag, limits); });
  else
    source = engine_->recv(buffer, from, tag, limits);
  end.return_from();
  return source;
}

// The record ends with the transfer, or here if no transfer was posted.
template <class Post>
TransferPtr Communicator::post_recorded(MessageOp op, const Buffer& buffer, int peer,
                                        std::int64_t tag, bool is_async, Post post) {
  FlightSlot* const record = recorder_.begin_message(op, buffer, peer, tag, is_async);
  const std::uint64_t number = record == nullptr ? 0 : record->number();
  try {
    return post(record);
  } catch (...) {
    if (record != nullptr && record->is_under_way(number)) record->end(false);
    throw;
  }
}

TransferPtr Communicator::post_send(const Buffer& buffer, int to, std::int64_t tag,
                                    const Limits& limits) {
  check_peer("send", to);
  if (!is_ready_.load(std::memory_order_acquire)) open(limits);
  const auto post = [&] {
    const auto begin = [&](FlightSlot* record) {
      return engine_->post_send(buffer, to, tag, limits.deadline, record);
    };
    return post_recorded(MessageOp::Send, buffer, to, tag, true, begin);
  };
  Observer* const watching = observer();
  if (watching == nullptr) return post();
  return observe_post(*watching, message_record("send", buffer, to, tag, true), post);
}

TransferPtr Communicator::post_recv(const Buffer& buffer, int from, std::int64_t tag,
                                    const Limits& limits, Fit fit) {
  return begin_recv(buffer, from, tag, limits, fit, true);
}

TransferPtr Communicator::begin_recv(const Buffer& buffer, int from, std::int64_t tag,
                                     const Limits& limits, Fit fit, bool is_async) {
  const MessageOp op = fit == Fit::Look ? MessageOp::Probe : MessageOp::Recv;
  if (from != kAnySource) check_peer(name_of(op), from);
  if (!is_ready_.load(std::memory_order_acquire)) open(limits);
  const auto post = [&] {
    const auto begin = [&](FlightSlot* record) {
      return engine_->post_recv(buffer, from, tag, limits.deadline, record, fit);
    };
    return post_recorded(op, buffer, from, tag, is_async, begin);
  };
  Observer* const watching = observer();
  if (watching == nullptr) return post();
  return observe_post(*watching,
                      message_record(name_of(op), buffer, from, tag, is_async), post);
}

TransferPtr Communicator::recv_fit(const Buffer& buffer, int from, std::int64_t tag,
                                   const Limits& limits, Fit fit) {
  if (from == rank()) {
    if (!is_ready_.load(std::memory_order_acquire)) open(limits);
    Transfer from_itself(false, buffer, from, tag, limits.deadline);
    from_itself.fit = fit;
    engine_->check_counterpart(from_itself);
  }
  TransferPtr receive = begin_recv(buffer, from, tag, limits, fit, false);
  engine_->wait(receive, limits, ProgressEngine::AtEnd::GiveUp);
  return receive;
}

TransferPtr Communicator::probe_now(int from, std::int64_t tag, const Limits& limits) {
  if (from != kAnySource) check_peer("probe", from);
  if (!is_ready_.load(std::memory_order_acquire)) open(limits);
  return engine_->probe_now(from, tag);
}

std::vector<FlightEntry> Communicator::flight_entries() {
  // Read the queue before the ring: an operation that begins meanwhile is then in both.
  // In the opposite order it would be in neither.
  std::vector<FlightEntry> queued;
  queue_.each([&](const OperationQueue::Entry& entry) {
    queued.push_back(FlightRecorder::scheduled(
        entry.ticket, entry.operation.collective->descriptor(entry.operation),
        entry.issued));
  });
  std::vector<FlightEntry> entries = recorder_.read();
  const std::size_t num_begun = entries.size();
  for (const FlightEntry& each : queued) {
    const auto has_begun = [&](const FlightEntry& entry) {
      return !entry.is_message && entry.sequence == each.sequence;
    };
    if (std::none_of(entries.begin(),
                     entries.begin() + static_cast<std::ptrdiff_t>(num_begun),
                     has_begun))
      entries.push_back(each);
  }
  return entries;
}

OperationRecord Communicator::collective_record(Turns::Ticket ticket,
                                                const Descriptor& descriptor,
                                                bool is_async) const {
  return {.group = name(),
          .op = name_of(descriptor.op),
          .sequence = ticket,
          .dtype = descriptor.dtype,
          .count = descriptor.count,
          .root = descriptor.root,
          .is_async = is_async};
}

OperationRecord Communicator::message_record(const char* op, const Buffer& buffer,
                                             int peer, std::int64_t tag,
                                             bool is_async) const {
  return {.group = name(),
          .op = op,
          .dtype = buffer.dtype,
          .count = buffer.count,
          .peer = peer,
          .tag = tag,
          .is_async = is_async};
}

}  // namespace allhands
