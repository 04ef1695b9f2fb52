#include "allhands/engine/progress_engine.hpp"

#include <sched.h>

#include <chrono>
#include <cstring>
#include <string>

#include "allhands/base/futex.hpp"

namespace allhands {
namespace {

// Unmatched data that is kept for one source before its ring is left to fill up, which
// holds the sender.
constexpr std::size_t kMaxKeptBytes = std::size_t{16} << 20;

constexpr int kPolls = 300;  // yields before a wait sleeps, as in the arena

double seconds(const Deadline& deadline) {
  return std::chrono::duration<double>(deadline.limit()).count();
}

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
                               const Membership& membership)
    : memory_(std::move(memory)),
      membership_(membership),
      bell_(Mailroom(membership.size()).bell(base, membership.rank)),
      channels_(channels_of(base, membership)),
      matching_(membership.size()) {
  bell_.is_here.store(1, std::memory_order_release);
  for (Channel& peer : channels_) peer.their_bell.ring();  // some may flush and wait
}

ProgressEngine::~ProgressEngine() { leave(); }

TransferPtr ProgressEngine::post_send(const Buffer& buffer, int to, std::int64_t tag,
                                      Deadline deadline) {
  auto send = std::make_shared<Transfer>(true, buffer, to, tag, deadline);
  Done done;
  {
    const std::lock_guard lock(mutex_);
    Channel& peer = channel(to);
    if (peer.refused) {
      const Error error = *peer.refused;
      peer.refused.reset();
      throw error;
    }
    if (peer.their_bell.has_left.load(std::memory_order_acquire) != 0)
      throw Error(ErrorKind::RankFailed,
                  describe(*send) + ": " + membership_.describe(to) + " left the group",
                  {to});
    send->id = next_id_++;
    peer.post(send);
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
    receive->id = next_id_++;
    if (const auto kept = matching_.match(*receive)) {
      start(kept->source, kept->message, kept->data.data(), receive, done);
      push(kept->source, done);
    } else {
      matching_.post(receive);
    }
    scanned_ =
        bell_.count.load(std::memory_order_relaxed) - 1;  // a full ring may go on
  }
  complete(done);
  return receive;
}

void ProgressEngine::wait(const TransferPtr& transfer, const Limits& limits,
                          AtEnd at_end) {
  int polls = 0;
  while (true) {
    const std::uint32_t seen = bell_.count.load(std::memory_order_seq_cst);
    if (progress()) polls = 0;
    if (transfer->work.is_completed()) break;
    if (++polls < kPolls) {
      sched_yield();
      continue;
    }
    sleep(seen);
    if (bell_.count.load(std::memory_order_acquire) != seen) continue;
    fail_gone_peers();
    const bool is_interrupted = limits.interrupt != nullptr && limits.interrupt();
    if (!is_interrupted && !limits.deadline.is_expired()) continue;
    if (at_end == AtEnd::GoOn) {
      if (is_interrupted) throw Error(ErrorKind::Interrupted, "interrupted");
      break;
    }
    give_up(transfer, is_interrupted ? Error(ErrorKind::Interrupted, "interrupted")
                                     : timeout_of(*transfer, limits.deadline));
  }
  transfer->work.wait(limits);
}

void ProgressEngine::sleep(std::uint32_t seen) {
  bell_.waiters.fetch_add(1, std::memory_order_seq_cst);
  if (bell_.count.load(std::memory_order_seq_cst) == seen)
    futex_wait(bell_.count, seen, std::chrono::milliseconds(kInterruptSliceMs));
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
    // Another thread of this rank may sleep on what we have just done for it.
    if (!done.empty() && bell_.waiters.load(std::memory_order_seq_cst) != 0) {
      bell_.ring();
      scanned_ = bell_.count.load(std::memory_order_seq_cst);
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
    if (!handle(source, record, done)) break;
    moved = true;
    if (peer.in.pop()) peer.their_bell.ring();
  }
  return moved;
}

// False: the record must stay where it is for now.
bool ProgressEngine::handle(int source, const std::byte* record, Done& done) {
  Message message;
  std::memcpy(&message, record, sizeof(message));
  const std::byte* data = data_of(record);
  switch (message.kind) {
    case MessageKind::Eager:
    case MessageKind::Offer:
      if (TransferPtr receive = matching_.match(source, message.tag)) {
        start(source, message, data, std::move(receive), done);
        return true;
      }
      if (matching_.kept_bytes(source) > kMaxKeptBytes) return false;
      matching_.keep({source, message, kept_data(message, data)});
      return true;
    case MessageKind::Accept:
      channel(source).accept(message.send_id, message.recv_id);
      return true;
    case MessageKind::Data:
      take_piece(source, message, data, done);
      return true;
    case MessageKind::Refuse:
      take_refusal(source, message, done);
      return true;
    case MessageKind::Cancel:
      take_cancel(source, message, done);
      return true;
  }
  return true;
}

Error ProgressEngine::timeout_of(const Transfer& transfer,
                                 const Deadline& deadline) const {
  std::vector<int> missing;
  if (transfer.peer != kAnySource) missing.push_back(transfer.peer);
  return Error(ErrorKind::Timeout,
               describe(transfer) + ": rank " + std::to_string(membership_.rank) +
                   " (this process) waited " + std::to_string(seconds(deadline)) +
                   " s for " +
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
}

}  // namespace allhands
