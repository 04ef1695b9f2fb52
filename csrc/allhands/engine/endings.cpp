// ProgressEngine: transfers that nobody waits for, and those that come to nothing.
#include <algorithm>
#include <string>

#include "allhands/engine/progress_engine.hpp"

namespace allhands {

void ProgressEngine::drive(const TransferPtr& transfer) {
  if (transfer->work.is_completed()) return;
  {
    const std::lock_guard lock(thread_mutex_);
    driven_.push_back(transfer);
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  }
  changed_.notify_one();
}

void ProgressEngine::run() {
  while (true) {
    {
      std::unique_lock lock(thread_mutex_);
      std::erase_if(driven_,
                    [](const TransferPtr& t) { return t->work.is_completed(); });
      changed_.wait(lock, [this] { return stop_ || !driven_.empty(); });
      if (stop_) return;
    }
    const std::uint32_t seen = bell_.count.load(std::memory_order_seq_cst);
    if (progress()) continue;
    sleep(seen);
    if (bell_.count.load(std::memory_order_acquire) != seen) continue;
    fail_gone_peers();
    fail_expired();
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
  return bell.has_left.load(std::memory_order_acquire) != 0 ||
         !membership_.is_peer_alive(peer);
}

std::vector<TransferPtr> ProgressEngine::pending() {
  std::vector<TransferPtr> all(matching_.posted().begin(), matching_.posted().end());
  for (Channel& peer : channels_) {
    const std::vector<TransferPtr> sends = peer.sends();
    all.insert(all.end(), sends.begin(), sends.end());
    for (const auto& [id, entry] : peer.receiving)
      if (entry.transfer) all.push_back(entry.transfer);
  }
  return all;
}

// What peers sent before they went has been taken in: nothing moved for a whole slice.
void ProgressEngine::fail_gone_peers() {
  std::vector<bool> gone(channels_.size());
  for (int peer = 0; peer < membership_.size(); ++peer)
    gone[static_cast<std::size_t>(peer)] = peer != membership_.rank && is_gone(peer);
  if (std::find(gone.begin(), gone.end(), true) == gone.end()) return;
  std::vector<int> all_gone;
  for (std::size_t peer = 0; peer < gone.size(); ++peer)
    if (gone[peer]) all_gone.push_back(static_cast<int>(peer));
  const bool nobody_left = all_gone.size() + 1 == gone.size();
  Done done;
  {
    const std::lock_guard lock(mutex_);
    for (const TransferPtr& transfer : pending()) {
      const bool any = transfer->peer == kAnySource;
      if (any ? !nobody_left : !gone[static_cast<std::size_t>(transfer->peer)])
        continue;
      const std::string who =
          any ? "all other ranks" : membership_.describe(transfer->peer);
      withdraw(transfer,
               Error(ErrorKind::RankFailed,
                     describe(*transfer) + ": " + who + " died or left the group",
                     any ? all_gone : std::vector<int>{transfer->peer}),
               done);
    }
  }
  complete(done);
}

void ProgressEngine::give_up(const TransferPtr& transfer, const Error& error) {
  Done done;
  {
    const std::lock_guard lock(mutex_);
    if (!transfer->work.is_completed()) withdraw(transfer, error, done);
  }
  complete(done);
}

// Takes it out of wherever it is; nothing happens if it has just ended.
void ProgressEngine::withdraw(const TransferPtr& transfer, const Error& error,
                              Done& done) {
  bool found = false;
  if (transfer->is_send) {
    found = channel(transfer->peer).withdraw(*transfer);
    push(transfer->peer, done);  // the peer is told
  } else {
    found = matching_.withdraw(*transfer);
    for (Channel& peer : channels_)
      for (auto& [id, entry] : peer.receiving)
        if (entry.transfer == transfer) {
          entry.transfer = nullptr;  // its pieces are dropped as they come
          found = true;
        }
  }
  if (found) done.emplace_back(transfer, std::make_exception_ptr(error));
}

void ProgressEngine::flush(const Limits& limits) {
  while (true) {
    const std::uint32_t seen = bell_.count.load(std::memory_order_seq_cst);
    progress();
    std::vector<int> waiting;
    {
      const std::lock_guard lock(mutex_);
      for (int peer = 0; peer < membership_.size(); ++peer) {
        const Channel& c = channel(peer);
        const bool is_safe = c.is_drained() || is_gone(peer) ||
                             (c.is_idle() && c.their_bell.is_here.load() != 0);
        if (!is_safe) waiting.push_back(peer);
      }
    }
    if (waiting.empty()) return;
    if (!limits.deadline.is_expired()) sleep(seen);
    if (limits.interrupt != nullptr && limits.interrupt())
      throw Error(ErrorKind::Interrupted, "interrupted");
    if (limits.deadline.is_expired()) {
      std::string ranks;
      for (const int peer : waiting)
        ranks += (ranks.empty() ? "" : ", ") + membership_.describe(peer);
      throw Error(ErrorKind::Timeout,
                  "group '" + membership_.name + "': messages to " + ranks +
                      " were not received before this rank left",
                  waiting);
    }
  }
}

void ProgressEngine::leave() {
  {
    const std::lock_guard lock(thread_mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  bell_.ring();
  if (thread_.joinable()) thread_.join();
  Done done;
  {
    const std::lock_guard lock(mutex_);
    if (has_left_) return;
    has_left_ = true;
    for (const TransferPtr& transfer : pending())
      withdraw(
          transfer,
          Error(ErrorKind::Backend, describe(*transfer) + ": the group was destroyed"),
          done);
    bell_.has_left.store(1, std::memory_order_release);
    for (Channel& peer : channels_) peer.their_bell.ring();
  }
  complete(done);
}

}  // namespace allhands
