#include "allhands/transport/tcp/channel.hpp"

#include <string>
#include <utility>

#include "allhands/transport/link.hpp"

namespace allhands {

void Channel::attach(std::shared_ptr<GroupEvents> events, int peer, int self) {
  {
    const std::lock_guard lock(mutex_);
    events_ = std::move(events);
    peer_ = peer;
    self_ = self;
    // Announces what came before this process joined the group.
    if (presence() == Presence::Aborted) events_->note_abort();
    if (has_record()) events_->tell_record(peer_, is_listed_);
  }
  tell_events();
}

void Channel::detach() {
  const std::lock_guard lock(mutex_);
  events_ = nullptr;
}

bool Channel::pop() {
  const std::uint64_t popped =
      popped_.load(std::memory_order_relaxed) + cost(queue_.pop());
  popped_.store(popped, std::memory_order_release);
  if (popped - told_popped_.load(std::memory_order_relaxed) >= kUntold) return true;
  return has_finished_.load(std::memory_order_relaxed) && !queue_.has_record() &&
         has_finished_.exchange(false, std::memory_order_relaxed);
}

bool Channel::settle(std::size_t bytes) {
  const std::uint64_t settled = settled_.load(std::memory_order_relaxed) + bytes;
  settled_.store(settled, std::memory_order_release);
  return settled - told_settled_.load(std::memory_order_relaxed) >= kUntold;
}

bool Channel::has_untold() const {
  return popped_.load(std::memory_order_relaxed) !=
             told_popped_.load(std::memory_order_relaxed) ||
         settled_.load(std::memory_order_relaxed) !=
             told_settled_.load(std::memory_order_relaxed);
}

void Channel::tell_events() {
  const std::lock_guard lock(mutex_);
  if (events_) events_->tell();
}

std::optional<Error> Channel::abort_reason() const {
  const std::lock_guard lock(mutex_);
  return why_;
}

void Channel::stamp(FrameHead& head) {
  head.channel = id_;
  head.popped = popped_.load(std::memory_order_acquire);
  head.settled = settled_.load(std::memory_order_acquire);
  told_popped_.store(head.popped, std::memory_order_relaxed);
  told_settled_.store(head.settled, std::memory_order_relaxed);
}

void Channel::see(const FrameHead& head) {
  const std::uint64_t popped = popped_there_.load(std::memory_order_relaxed);
  if (head.popped < popped || head.popped > sent_.load(std::memory_order_acquire))
    throw LinkError("it has popped " + std::to_string(head.popped) +
                    " bytes of a channel, of which " + std::to_string(sent_.load()) +
                    " were sent and " + std::to_string(popped) + " popped before");
  settled_there_.store(head.settled, std::memory_order_relaxed);
  if (head.popped == popped) return;
  popped_there_.store(head.popped, std::memory_order_release);
  tell_events();
}

void Channel::expect(LandingKey key, std::span<std::byte> memory) {
  const std::lock_guard lock(mutex_);
  places_[key] = memory;
}

bool Channel::forget(LandingKey key) {
  const std::lock_guard lock(mutex_);
  places_.erase(key);
  return landing_ == key;
}

std::byte* Channel::begin_landing(Landed landed) {
  const std::lock_guard lock(mutex_);
  std::byte* const at = take_place_locked(landed);
  if (at != nullptr) landing_ = landed.key;
  return at;
}

std::byte* Channel::take_place(Landed landed) {
  const std::lock_guard lock(mutex_);
  return take_place_locked(landed);
}

std::byte* Channel::take_place_locked(Landed landed) {
  const auto found = places_.find(landed.key);
  if (found == places_.end() || found->second.size() < landed.bytes) return nullptr;
  std::byte* const at = found->second.data();
  found->second = found->second.subspan(landed.bytes);
  return at;
}

std::byte* Channel::reserve(std::size_t record_bytes, Landed landed) {
  const std::uint64_t unread =
      reserved_ - popped_.load(std::memory_order_acquire) + cost(record_bytes);
  if (record_bytes == 0 || record_bytes > kMaxRecord || unread > kWindow)
    throw LinkError("a record of " + std::to_string(record_bytes) +
                    " bytes came where the peer may have " + std::to_string(kWindow) +
                    " on its way, and would have " + std::to_string(unread));
  reserved_ += cost(record_bytes);
  return queue_.reserve(record_bytes - landed.bytes, landed);
}

void Channel::commit() {
  queue_.commit();
  const std::lock_guard lock(mutex_);
  landing_ = kNoLanding;
  if (events_) events_->tell_record(peer_, is_listed_);
}

void Channel::finish(std::uint64_t number) {
  has_finished_.store(true, std::memory_order_relaxed);
  queue_.finish(number);
  const std::lock_guard lock(mutex_);
  if (events_) events_->tell_record(peer_, is_listed_);
}

void Channel::take_own_end(const std::string& why) {
  int self = -1;
  {
    const std::lock_guard lock(mutex_);
    if (events_ == nullptr) return;  // this process has not joined the group
    self = self_;
  }
  const std::string who = "rank " + std::to_string(self) + " (this process)";
  take({Presence::Aborted,
        Error(ErrorKind::RankFailed, who + " was given up: " + why, {self})});
}

void Channel::take(const Saying& saying) {
  const std::lock_guard lock(mutex_);
  if (presence() != Presence::Here) return;  // a rank that has left does not come back
  why_ = saying.why;
  presence_.store(saying.how, std::memory_order_release);
  if (!events_) return;
  if (saying.how == Presence::Aborted) events_->note_abort();
  events_->tell();
}

}  // namespace allhands
