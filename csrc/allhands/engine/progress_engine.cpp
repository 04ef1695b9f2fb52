#include "allhands/engine/progress_engine.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>

#include "allhands/base/futex.hpp"
#include "allhands/base/seconds.hpp"
#include "allhands/base/wait_awake.hpp"
#include "allhands/transport/shm/peer_memory.hpp"

namespace allhands {
namespace {

// Of a wait that is kept busy; a look at the clock costs more than a turn.
constexpr unsigned kTurnsPerLook = 16;

std::vector<std::byte> kept_data(const Message& message, const std::byte* data) {
  const bool is_offer = message.kind == MessageKind::Offer;
  const std::size_t bytes = is_offer ? sizeof(ControlMessage) - sizeof(Message)
                                     : message.count * size_of(message.dtype);
  return std::vector<std::byte>(data, data + bytes);
}

std::vector<Channel> channels_of(std::byte* base, const Membership& membership,
                                 const Tuning& tuning) {
  const Mailroom room(membership.size());
  std::vector<Channel> channels;
  for (int peer = 0; peer < membership.size(); ++peer)
    channels.emplace_back(room, base, membership.rank, peer,
                          membership.peers[static_cast<std::size_t>(peer)].pid, tuning);
  return channels;
}

Placement placement_of(std::byte* base, const Membership& membership,
                       const Tuning& tuning) {
  const Mailroom room(membership.size());
  std::vector<Seat*> seats;
  for (int rank = 0; rank < membership.size(); ++rank)
    seats.push_back(&room.bell(base, rank).seat);
  return Placement(std::move(seats), room.lobby(base).moves, membership.rank,
                   tuning.yields_per_look);
}

// Counts one while it lives.
class Counted {
 public:
  explicit Counted(std::atomic<int>& count) : count_(count) { ++count_; }
  ~Counted() { --count_; }

 private:
  std::atomic<int>& count_;
};

}  // namespace

ProgressEngine::ProgressEngine(std::shared_ptr<SharedMemory> memory, std::byte* base,
                               const Membership& membership, const Tuning& tuning,
                               Failure failure, const LateNotice& late_notice)
    : memory_(std::move(memory)),
      membership_(membership),
      tuning_(tuning),
      failure_(std::move(failure)),
      late_notice_(late_notice),
      bell_(Mailroom(membership.size()).bell(base, membership.rank)),
      placement_(placement_of(base, membership, tuning)),
      channels_(channels_of(base, membership, tuning)) {
  let_siblings_read();
  bell_.is_here.store(1, std::memory_order_release);
  for (Channel& peer : channels_) peer.their_bell.ring();  // some may flush and wait
}

ProgressEngine::~ProgressEngine() {
  leave(Error(ErrorKind::Backend, "group '" + membership_.name + "' was destroyed"));
  join();
}

void ProgressEngine::send(const Buffer& buffer, int to, std::int64_t tag,
                          const Limits& limits) {
  bool is_sent = false;
  {
    const std::lock_guard lock(mutex_);
    check_sendable(buffer, to, tag);
    is_sent = channel(to).send_at_once(buffer, tag, next_id_);
    if (is_sent) ++next_id_;
  }
  if (is_sent)
    progress();  // the peer may have refused an earlier one
  else
    wait(post_send(buffer, to, tag, limits.deadline), limits, AtEnd::GiveUp);
}

int ProgressEngine::recv(const Buffer& buffer, int from, std::int64_t tag,
                         const Limits& limits) {
  if (recv_at_once(buffer, from, tag)) return from;
  const TransferPtr receive = post_recv(buffer, from, tag, limits.deadline);
  wait(receive, limits, AtEnd::GiveUp);
  return receive->source;
}

// Of a message that is about to go.
void ProgressEngine::check_sendable(const Buffer& buffer, int to, std::int64_t tag) {
  if (ended_) throw *ended_;
  throw_refusals(to);
  if (has_aborted(to)) throw abortion(to);
  if (was_gone_lately(to))
    throw Error(ErrorKind::RankFailed,
                describe(Transfer(true, buffer, to, tag, Deadline::after({}))) + ": " +
                    membership_.describe(to) + " died or left the group",
                {to});
}

TransferPtr ProgressEngine::post_send(const Buffer& buffer, int to, std::int64_t tag,
                                      Deadline deadline) {
  auto send = std::make_shared<Transfer>(true, buffer, to, tag, deadline);
  Ended ended;
  {
    const std::lock_guard lock(mutex_);
    check_sendable(buffer, to, tag);
    send->id = next_id_++;
    channel(to).post(send);
    push(to, ended);
  }
  complete(ended);
  return send;
}

TransferPtr ProgressEngine::post_recv(const Buffer& buffer, int from, std::int64_t tag,
                                      Deadline deadline) {
  auto receive = std::make_shared<Transfer>(false, buffer, from, tag, deadline);
  Ended ended;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) throw *ended_;
    for (int peer = 0; peer < membership_.size(); ++peer)
      if (from == peer || from == kAnySource) throw_refusals(peer);
    receive->id = next_id_++;
    if (const auto kept = matching_.match(*receive)) {
      start(kept->source, kept->message, kept->data.data(), receive, ended);
      push(kept->source, ended);
      copy(kept->source, ended);
    } else {
      matching_.post(receive);
    }
  }
  complete(ended);
  return receive;
}

void ProgressEngine::wait(const TransferPtr& transfer, const Limits& limits,
                          AtEnd at_end) {
  const Counted counted(waiting_);
  const int peer = transfer->peer;
  Lookout lookout;
  bool is_interrupted = false;
  for (unsigned turns = 1; !transfer->work.is_completed(); ++turns) {
    // A record is seen in its ring before the bell tells of it.
    if (has_record_from(peer)) serve(peer);
    if (transfer->work.is_completed()) break;
    const std::uint32_t seen = bell_.count.load(std::memory_order_seq_cst);
    progress();
    const bool has_news = wait_for_news(seen, *transfer);
    if (!has_news) sleep(seen, transfer.get(), &limits.deadline);
    if (has_news && turns % kTurnsPerLook != 0) continue;
    const bool is_expired = limits.deadline.is_expired();
    if (!is_expired && !lookout.is_due()) continue;
    look_around();
    tell_if_late(*transfer, limits.deadline);
    is_interrupted = limits.interrupt != nullptr && limits.interrupt();
    if (!is_interrupted && !is_expired) continue;
    if (at_end == AtEnd::GoOn) {
      if (is_interrupted) throw interrupted();
      return transfer->work.wait(limits);
    }
    give_up(transfer,
            is_interrupted ? interrupted() : timeout_of(*transfer, limits.deadline));
    break;
  }
  // It has ended, or another thread is about to say so.
  transfer->work.wait({Deadline::after_first_look(Deadline::Duration::max())});
  // It has ended well meanwhile; the caller's language has its exception all the same.
  if (is_interrupted) throw interrupted();
}

// Awake. False: none came; it is time to sleep.
bool ProgressEngine::wait_for_news(std::uint32_t seen, const Transfer& transfer) {
  const auto has_news = [&] {
    return transfer.work.is_completed() || has_record_from(transfer.peer) ||
           num_copying_.load(std::memory_order_relaxed) != 0 ||
           bell_.count.load(std::memory_order_relaxed) != seen;
  };
  const std::unique_lock lock(placement_mutex_, std::try_to_lock);
  if (!lock) return wait_awake(tuning_, has_news);  // another thread places this rank
  if (wait_awake(tuning_, has_news, [this] { placement_.yield(); })) return true;
  placement_.leave_seat();
  return false;
}

// `transfer` and `deadline`, what the caller waits for and until when, may be null.
void ProgressEngine::sleep(std::uint32_t seen, const Transfer* transfer,
                           const Deadline* deadline) {
  std::chrono::nanoseconds limit = Wait::kSlice;
  if (deadline != nullptr) limit = std::min(limit, deadline->remaining());
  bell_.waiters.fetch_add(1, std::memory_order_seq_cst);
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  // Another thread that ends the transfer sees us among the waiters, or we see its end.
  const bool has_ended = transfer != nullptr && transfer->work.is_completed();
  if (!has_ended && bell_.count.load(std::memory_order_seq_cst) == seen)
    futex_wait(bell_.count, seen, limit);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
  bell_.waiters.fetch_sub(1, std::memory_order_relaxed);
}

bool ProgressEngine::progress() {
  // Whoever has looked since will tell, if we wait for what it finds.
  if (bell_.count.load(std::memory_order_seq_cst) == scanned_ && num_copying_ == 0)
    return false;
  Ended ended;
  bool moved = false;
  {
    const std::lock_guard lock(mutex_);
    scanned_ = bell_.count.load(std::memory_order_seq_cst);
    for (int peer = 0; peer < membership_.size(); ++peer) {
      moved |= pull(peer, ended);
      moved |= push(peer, ended);
      moved |= copy(peer, ended);
    }
  }
  complete(ended);
  return moved;
}

// What one peer has written, and what can be written to it.
void ProgressEngine::serve(int peer) {
  Ended ended;
  {
    const std::lock_guard lock(mutex_);
    pull(peer, ended);
    push(peer, ended);
    copy(peer, ended);
  }
  complete(ended);
}

bool ProgressEngine::has_record_from(int peer) const {
  return peer != kAnySource &&
         channels_[static_cast<std::size_t>(peer)].in.has_record();
}

bool ProgressEngine::push(int peer, Ended& ended) {
  std::vector<TransferPtr> sent;
  const bool wrote = channel(peer).push(sent);
  for (TransferPtr& send : sent) ended.add(std::move(send), nullptr);
  return wrote;
}

bool ProgressEngine::pull(int source, Ended& ended) {
  Channel& peer = channel(source);
  bool moved = false;
  while (const std::byte* record = peer.in.front()) {
    handle(source, record, ended);
    moved = true;
    if (peer.in.pop()) peer.their_bell.ring();
  }
  return moved;
}

void ProgressEngine::handle(int source, const std::byte* record, Ended& ended) {
  Message message;
  std::memcpy(&message, record, sizeof(message));
  const std::byte* data = data_of(record);
  switch (message.kind) {
    case MessageKind::Eager:
    case MessageKind::Offer:
      if (TransferPtr receive = matching_.match(source, message.tag))
        start(source, message, data, std::move(receive), ended);
      else
        matching_.keep({source, message, kept_data(message, data)});
      return;
    case MessageKind::Join: {
      ControlMessage control;
      std::memcpy(&control, record, sizeof(control));
      channel(source).join(message.send_id, control.address);
      return;
    }
    case MessageKind::Over:
      if (TransferPtr send = channel(source).take(message.send_id))
        ended.add(std::move(send), nullptr);
      return;
    case MessageKind::Accept:
      channel(source).accept(message.send_id, message.recv_id);
      return;
    case MessageKind::Data:
      return take_piece(source, message, data, ended);
    case MessageKind::Refuse:
      return take_refusal(source, message, ended);
    case MessageKind::Cancel:
      return take_cancel(source, message, ended);
  }
}

Error ProgressEngine::timeout_of(const Transfer& transfer,
                                 const Deadline& deadline) const {
  std::vector<int> missing;
  if (transfer.peer != kAnySource) missing.push_back(transfer.peer);
  return Error(ErrorKind::Timeout,
               describe(transfer) + ": rank " + std::to_string(membership_.rank) +
                   " (this process) waited " + seconds(deadline.limit()) + " for " +
                   describe_peer(transfer),
               missing);
}

// A line for who wonders why nothing happens.
void ProgressEngine::tell_if_late(const Transfer& transfer, const Deadline& deadline) {
  const Deadline::Duration waited = deadline.elapsed();
  if (transfer.work.is_completed() || deadline.is_expired()) return;
  if (!late_notice_.is_due(waited)) return;
  const Deadline::Duration limit =
      std::min(deadline.limit(), transfer.deadline.limit());  // a wait() may have none
  late_notice_.say(describe(transfer) + ": rank " + std::to_string(membership_.rank) +
                   " (this process) has waited " + seconds(waited) + " (limit " +
                   seconds(limit) + ") for " + describe_peer(transfer));
}

std::string ProgressEngine::describe(const Transfer& transfer) const {
  std::string text = transfer.is_send ? "send" : "recv";
  text += std::string("(") + name_of(transfer.buffer.dtype) + ", count " +
          std::to_string(transfer.buffer.count) +
          (transfer.is_send ? ", to " : ", from ") +
          (transfer.peer == kAnySource ? "any rank"
                                       : "rank " + std::to_string(transfer.peer)) +
          ", tag " + std::to_string(transfer.tag) + ")";
  return text + " on group '" + membership_.name + "'";
}

std::string ProgressEngine::describe_peer(const Transfer& transfer) const {
  return transfer.peer == kAnySource ? "any rank" : membership_.describe(transfer.peer);
}

void ProgressEngine::complete(Ended& ended) {
  for (const TransferPtr& transfer : ended.to_announce) transfer->work.announce();
  // Other threads of this rank may sleep until just these have ended.
  if (ended.is_any && sleepers_.load(std::memory_order_seq_cst) != 0) bell_.ring();
}

}  // namespace allhands
