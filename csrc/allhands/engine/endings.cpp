// ProgressEngine: transfers that nobody waits for, and those that come to nothing.
#include <algorithm>
#include <string>
#include <utility>

#include "allhands/base/joined.hpp"
#include "allhands/engine/progress_engine.hpp"

namespace allhands {

void ProgressEngine::drive(const TransferPtr& transfer) {
  if (transfer->work.is_completed()) return;
  const std::lock_guard lock(thread_mutex_);
  driven_.push_back(transfer);
  is_fresh_ = true;
  if (stop_) return;
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  if (is_thread_asleep_) changed_.notify_one();
}

void ProgressEngine::run() {
  Lookout lookout;
  while (rest()) {
    const std::uint32_t seen = bell_.count.load(std::memory_order_seq_cst);
    const bool others_drive = waiting_.load(std::memory_order_relaxed) != 0;
    if (!others_drive && !progress()) sleep(seen, nullptr, nullptr);
    if (!lookout.is_due()) continue;
    look_around();
    fail_expired();
  }
}

// The thread's pause before its next turn; false: it is to end. Who has just posted a
// transfer mostly waits for it soon, and then moves messages itself: so the thread lets
// it, and naps. It naps on a few times when nothing is left to drive, because waking it
// for every transfer would cost more than the transfer.
bool ProgressEngine::rest() {
  constexpr std::chrono::microseconds kNap{200};
  constexpr int kMaxIdleNaps = 50;
  std::unique_lock lock(thread_mutex_);
  const auto is_stopped = [this] { return stop_; };
  for (int idle_naps = 0;; ++idle_naps) {
    std::erase_if(driven_, [](const TransferPtr& t) { return t->work.is_completed(); });
    const bool has_others = is_fresh_ || waiting_.load(std::memory_order_relaxed) != 0;
    if (stop_ || (!driven_.empty() && !has_others)) return !stop_;
    is_fresh_ = false;
    if (driven_.empty() && idle_naps >= kMaxIdleNaps) {
      is_thread_asleep_ = true;
      changed_.wait(lock, [this] { return stop_ || !driven_.empty(); });
      is_thread_asleep_ = false;
      idle_naps = 0;
    }
    changed_.wait_for(lock, kNap, is_stopped);
    if (!driven_.empty()) return !stop_;
  }
}

void ProgressEngine::fail_expired() {
  std::vector<TransferPtr> expired;
  {
    const std::lock_guard lock(thread_mutex_);
    for (const TransferPtr& transfer : driven_)
      if (transfer->deadline.is_expired()) expired.push_back(transfer);
  }
  for (const TransferPtr& transfer : expired)
    give_up(transfer, timeout_of(*transfer, transfer->deadline));
}

bool ProgressEngine::is_gone(int peer) const {
  const Bell& bell = channels_[static_cast<std::size_t>(peer)].their_bell;
  return bell.has_left.load(std::memory_order_acquire) != kHere ||
         !is_alive(membership_.process(peer));
}

bool ProgressEngine::has_aborted(int peer) const {
  const Bell& bell = channels_[static_cast<std::size_t>(peer)].their_bell;
  return bell.has_left.load(std::memory_order_acquire) == kAborted;
}

Error ProgressEngine::abortion(int peer) const {
  const std::string who = "group '" + membership_.name + "': ";
  if (const std::optional<Error> told = failure_())
    return Error(told->kind(), who + told->what(), told->ranks());
  return Error(ErrorKind::Backend, who + membership_.describe(peer) + " aborted it");
}

// Reading /proc takes microseconds, so it is not done for every message.
bool ProgressEngine::was_gone_lately(int peer) {
  Channel& c = channel(peer);
  const auto now = Deadline::Clock::now();
  if (!c.is_gone && peer != membership_.rank && now - c.looked_at > Wait::kSlice) {
    c.is_gone = is_gone(peer);
    c.looked_at = now;
  }
  return c.is_gone || c.their_bell.has_left.load(std::memory_order_acquire) != kHere;
}

// Once each.
void ProgressEngine::throw_refusals(int peer) {
  if (auto refused = std::exchange(channel(peer).refused, std::nullopt)) throw *refused;
}

std::vector<TransferPtr> ProgressEngine::pending() {
  std::vector<TransferPtr> all(matching_.posted().begin(), matching_.posted().end());
  for (Channel& peer : channels_) {
    const std::vector<TransferPtr> sends = peer.sends();
    all.insert(all.end(), sends.begin(), sends.end());
    for (const auto& [id, entry] : peer.receiving)
      if (entry.transfer) all.push_back(entry.transfer);
    if (peer.inbound.receive()) all.push_back(peer.inbound.receive());
    for (const auto& taking : peer.taking) all.push_back(taking.transfer);
  }
  return all;
}

void ProgressEngine::look_around() {
  std::vector<int> gone;
  for (int peer = 0; peer < membership_.size(); ++peer) {
    if (peer == membership_.rank) continue;
    if (has_aborted(peer)) return leave(abortion(peer));
    if (is_gone(peer)) gone.push_back(peer);
  }
  if (!gone.empty()) fail_gone_peers(gone);
}

void ProgressEngine::fail_gone_peers(const std::vector<int>& gone) {
  const auto is_among_gone = [&](int peer) {
    return std::find(gone.begin(), gone.end(), peer) != gone.end();
  };
  const bool nobody_left = gone.size() + 1 == channels_.size();
  Ended ended;
  {
    const std::lock_guard lock(mutex_);
    for (const int peer : gone) pull(peer, ended);  // what they sent before they went
    for (const TransferPtr& transfer : pending()) {
      const int peer =
          transfer->source != kAnySource ? transfer->source : transfer->peer;
      const bool any = peer == kAnySource;
      if (any ? !nobody_left : !is_among_gone(peer)) continue;
      const std::string who =
          any ? "all others, " + membership_.describe(gone[0]) + " among them,"
              : membership_.describe(peer);
      withdraw(transfer,
               Error(ErrorKind::RankFailed,
                     describe(*transfer) + ": " + who + " died or left the group",
                     any ? gone : std::vector<int>{peer}),
               ended);
      if (transfer->is_send) lost_sends_.push_back(transfer);
    }
  }
  complete(ended);
}

void ProgressEngine::give_up(const TransferPtr& transfer, const Error& error) {
  Ended ended;
  {
    const std::lock_guard lock(mutex_);
    if (!transfer->work.is_completed()) withdraw(transfer, error, ended);
  }
  complete(ended);
}

// Takes it out of wherever it is; nothing happens if it has just ended.
void ProgressEngine::withdraw(const TransferPtr& transfer, const Error& error,
                              Ended& ended) {
  bool found = false;
  if (transfer->is_send) {
    found = channel(transfer->peer).withdraw(*transfer);
    push(transfer->peer, ended);  // the peer is told
  } else {
    found = matching_.withdraw(*transfer);
    for (Channel& peer : channels_)
      for (auto& [id, entry] : peer.receiving)
        if (entry.transfer == transfer) {
          entry.transfer = nullptr;  // its pieces are dropped as they come
          found = true;
        }
    if (transfer->source != kAnySource) {
      const std::uint32_t send_id = channel(transfer->source).taken_by(*transfer);
      found = end_taking(transfer->source, send_id) != nullptr || found;
      push(transfer->source, ended);  // the peer is told
    }
  }
  if (found) ended.add(transfer, std::make_exception_ptr(error));
}

void ProgressEngine::flush(const Limits& limits) {
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;  // aborted: nothing is to be received any more
  }
  while (true) {
    const std::uint32_t seen = bell_.count.load(std::memory_order_seq_cst);
    progress();
    const std::vector<int> waiting = unserved_peers();
    if (waiting.empty()) break;
    if (!limits.deadline.is_expired()) sleep(seen, nullptr, &limits.deadline);
    if (limits.interrupt != nullptr && limits.interrupt()) throw interrupted();
    if (!limits.deadline.is_expired()) continue;
    const std::string ranks =
        joined(waiting, [&](int peer) { return membership_.describe(peer); });
    throw Error(ErrorKind::Timeout,
                "group '" + membership_.name + "': messages to " + ranks +
                    " were not received before this rank left",
                waiting);
  }
  if (has_sends()) look_around();  // they are to peers that are gone
  const std::lock_guard lock(mutex_);
  for (int peer = 0; peer < membership_.size(); ++peer) throw_refusals(peer);
  for (const TransferPtr& send : lost_sends_)
    if (send->work.has_untold_error()) std::rethrow_exception(send->work.error());
}

// Whether some have not ended.
bool ProgressEngine::has_sends() {
  const std::lock_guard lock(mutex_);
  return std::any_of(channels_.begin(), channels_.end(),
                     [](const Channel& peer) { return !peer.sends().empty(); });
}

// Peers for which something is left that they could not get once this rank is gone.
std::vector<int> ProgressEngine::unserved_peers() {
  std::vector<int> waiting;
  const std::lock_guard lock(mutex_);
  for (int peer = 0; peer < membership_.size(); ++peer) {
    const Channel& c = channel(peer);
    const bool is_safe = c.is_drained() || is_gone(peer) ||
                         (c.is_idle() && c.their_bell.is_here.load() != 0);
    if (!is_safe) waiting.push_back(peer);
  }
  return waiting;
}

void ProgressEngine::leave(const Error& reason, Leaving how) {
  {
    const std::lock_guard lock(thread_mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  Ended ended;
  {
    const std::lock_guard lock(mutex_);
    if (!ended_) {
      ended_ = reason;
      for (const TransferPtr& transfer : pending())
        withdraw(transfer,
                 Error(reason.kind(), describe(*transfer) + ": " + reason.what()),
                 ended);
      bell_.has_left.store(how, std::memory_order_release);
      for (Channel& peer : channels_) peer.their_bell.ring();
    }
  }
  complete(ended);
  bell_.ring();
}

void ProgressEngine::join() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace allhands
