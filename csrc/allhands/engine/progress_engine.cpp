#include "allhands/engine/progress_engine.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>

#include "allhands/base/futex.hpp"
#include "allhands/base/seconds.hpp"

namespace allhands {
namespace {

constexpr int kPolls = 300;  // yields before a wait sleeps, as in the arena

std::vector<std::byte> kept_data(const Message& message, const std::byte* data) {
  if (message.kind != MessageKind::Eager) return {};
  return std::vector<std::byte>(data, data + message.count * size_of(message.dtype));
}

std::vector<Channel> channels_of(std::byte* base, const Membership& membership) {
  const Mailroom room(membership.size());
  std::vector<Channel> channels;
  for (int peer = 0; peer < membership.size(); ++peer)
    channels.emplace_back(room.ring(base, membership.rank, peer),
                          room.ring(base, peer, membership.rank),
                          room.bell(base, peer));
  return channels;
}

}  // namespace

ProgressEngine::ProgressEngine(std::shared_ptr<SharedMemory> memory, std::byte* base,
                               const Membership& membership, Failure failure)
    : memory_(std::move(memory)),
      membership_(membership),
      failure_(std::move(failure)),
      bell_(Mailroom(membership.size()).bell(base, membership.rank)),
      channels_(channels_of(base, membership)) {
  bell_.is_here.store(1, std::memory_order_release);
  for (Channel& peer : channels_) peer.their_bell.ring();  // some may flush and wait
}

ProgressEngine::~ProgressEngine() {
  leave(Error(ErrorKind::Backend, "group '" + membership_.name + "' was destroyed"));
  join();
}

TransferPtr ProgressEngine::post_send(const Buffer& buffer, int to, std::int64_t tag,
                                      Deadline deadline) {
  auto send = std::make_shared<Transfer>(true, buffer, to, tag, deadline);
  Done done;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) throw *ended_;
    throw_refusals(to);
    if (has_aborted(to)) throw abortion(to);
    if (was_gone_lately(to))
      throw Error(
          ErrorKind::RankFailed,
          describe(*send) + ": " + membership_.describe(to) + " died or left the group",
          {to});
    send->id = next_id_++;
    channel(to).post(send);
    push(to, done);
  }
  complete(done);
  return send;
}

TransferPtr ProgressEngine::post_recv(const Buffer& buffer, int from, std::int64_t tag,
                                      Deadline deadline) {
  auto receive = std::make_shared<Transfer>(false, buffer, from, tag, deadline);
  Done done;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) throw *ended_;
    for (int peer = 0; peer < membership_.size(); ++peer)
      if (from == peer || from == kAnySource) throw_refusals(peer);
    receive->id = next_id_++;
    if (const auto kept = matching_.match(*receive)) {
      start(kept->source, kept->message, kept->data.data(), receive, done);
      push(kept->source, done);
    } else {
      matching_.post(receive);
    }
  }
  complete(done);
  return receive;
}

void ProgressEngine::wait(const TransferPtr& transfer, const Limits& limits,
                          AtEnd at_end) {
  Lookout lookout;
  int polls = 0;
  while (true) {
    const std::uint32_t seen = bell_.count.load(std::memory_order_seq_cst);
    if (progress()) polls = 0;
    if (transfer->work.is_completed()) break;
    if (++polls < kPolls)
      sched_yield();
    else
      sleep(seen, transfer.get(), &limits.deadline);
    const bool is_expired = limits.deadline.is_expired();
    if (!is_expired && !lookout.is_due()) continue;
    look_around();
    const bool is_interrupted = limits.interrupt != nullptr && limits.interrupt();
    if (!is_interrupted && !is_expired) continue;
    if (at_end == AtEnd::GoOn) {
      if (is_interrupted) throw Error(ErrorKind::Interrupted, "interrupted");
      return transfer->work.wait(limits);
    }
    give_up(transfer, is_interrupted ? Error(ErrorKind::Interrupted, "interrupted")
                                     : timeout_of(*transfer, limits.deadline));
    break;
  }
  // It has ended, or another thread is about to say so.
  transfer->work.wait({Deadline::after(Deadline::Duration::max())});
}

// `transfer` and `deadline`, what the caller waits for and until when, may be null.
void ProgressEngine::sleep(std::uint32_t seen, const Transfer* transfer,
                           const Deadline* deadline) {
  std::chrono::nanoseconds limit = std::chrono::milliseconds(kInterruptSliceMs);
  if (deadline != nullptr) limit = std::min(limit, deadline->remaining());
  bell_.waiters.fetch_add(1, std::memory_order_seq_cst);
  // Another thread that ends the transfer sees us among the waiters, or we see its end.
  const bool has_ended = transfer != nullptr && transfer->work.is_completed();
  if (!has_ended && bell_.count.load(std::memory_order_seq_cst) == seen)
    futex_wait(bell_.count, seen, limit);
  bell_.waiters.fetch_sub(1, std::memory_order_relaxed);
}

bool ProgressEngine::progress() {
  Done done;
  bool moved = false;
  {
    const std::lock_guard lock(mutex_);
    const std::uint32_t count = bell_.count.load(std::memory_order_seq_cst);
    if (count == scanned_) return false;
    scanned_ = count;
    for (int peer = 0; peer < membership_.size(); ++peer) {
      moved |= pull(peer, done);
      moved |= push(peer, done);
    }
  }
  complete(done);
  return moved;
}

bool ProgressEngine::push(int peer, Done& done) {
  std::vector<TransferPtr> sent;
  const bool wrote = channel(peer).push(sent);
  for (TransferPtr& send : sent) done.emplace_back(std::move(send), nullptr);
  return wrote;
}

bool ProgressEngine::pull(int source, Done& done) {
  Channel& peer = channel(source);
  bool moved = false;
  while (const std::byte* record = peer.in.front()) {
    handle(source, record, done);
    moved = true;
    if (peer.in.pop()) peer.their_bell.ring();
  }
  return moved;
}

void ProgressEngine::handle(int source, const std::byte* record, Done& done) {
  Message message;
  std::memcpy(&message, record, sizeof(message));
  const std::byte* data = data_of(record);
  switch (message.kind) {
    case MessageKind::Eager:
    case MessageKind::Offer:
      if (TransferPtr receive = matching_.match(source, message.tag))
        start(source, message, data, std::move(receive), done);
      else
        matching_.keep({source, message, kept_data(message, data)});
      return;
    case MessageKind::Accept:
      channel(source).accept(message.send_id, message.recv_id);
      return;
    case MessageKind::Data:
      return take_piece(source, message, data, done);
    case MessageKind::Refuse:
      return take_refusal(source, message, done);
    case MessageKind::Cancel:
      return take_cancel(source, message, done);
  }
}

Error ProgressEngine::timeout_of(const Transfer& transfer,
                                 const Deadline& deadline) const {
  std::vector<int> missing;
  if (transfer.peer != kAnySource) missing.push_back(transfer.peer);
  return Error(ErrorKind::Timeout,
               describe(transfer) + ": rank " + std::to_string(membership_.rank) +
                   " (this process) waited " + seconds(deadline.limit()) + " for " +
                   (missing.empty() ? "any rank" : membership_.describe(missing[0])),
               missing);
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

void ProgressEngine::complete(Done& done) {
  for (auto& [transfer, error] : done) transfer->work.complete(error);
  // Other threads of this rank may sleep until just these have ended.
  if (!done.empty() && bell_.waiters.load(std::memory_order_seq_cst) != 0) bell_.ring();
}

}  // namespace allhands
