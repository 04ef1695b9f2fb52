#include "allhands/transport/tcp/bodies.hpp"

#include <cstring>
#include <string>

#include "allhands/kernels/copy_bytes.hpp"
#include "allhands/transport/link.hpp"

namespace allhands {

void Bodies::announce(const Announcement& announcement, LandingKey key,
                      const std::shared_ptr<Channel>& channel) {
  const std::uint64_t number = announcement.number;
  const std::lock_guard lock(mutex_);
  if (number != next_ || announcement.body_bytes > Channel::kMaxRecord)
    throw LinkError("body " + std::to_string(number) + " of " +
                    std::to_string(announcement.body_bytes) +
                    " bytes is announced, where " + std::to_string(next_) +
                    " is the next");
  ++next_;
  Body& body = bodies_[number];
  const bool is_early = body.kept != nullptr;
  if (is_early && body.bytes != announcement.body_bytes)
    throw LinkError("body " + std::to_string(number) + " is announced with " +
                    std::to_string(announcement.body_bytes) + " bytes and has " +
                    std::to_string(body.bytes));
  if (is_early) --num_early_;
  body.is_announced = true;
  body.bytes = announcement.body_bytes;
  if (channel != nullptr) {
    const Landed landed = {key, body.bytes};
    body.place = channel->take_place(landed);
    const bool lands = body.place != nullptr;
    std::byte* const record = channel->reserve(announcement.head.size() + body.bytes,
                                               lands ? landed : Landed{});
    std::memcpy(record, announcement.head.data(), announcement.head.size());
    if (!lands) body.place = record + announcement.head.size();
    body.key = lands ? key : kNoLanding;
    body.channel = channel;
    body.record = channel->commit_unfinished();
  }
  if (body.is_there) deliver(number, body);
}

std::byte* Bodies::begin(std::uint64_t number, std::size_t bytes, unsigned strand) {
  const std::lock_guard lock(mutex_);
  const bool is_late = number < next_ && !bodies_.contains(number);
  Body& body = bodies_[number];
  if (is_late || body.strand != 0 || body.is_there ||
      (body.is_announced && body.bytes != bytes) || num_early_ == kMostEarly)
    throw LinkError("a body makes no sense: its number is " + std::to_string(number) +
                    ", and it has " + std::to_string(bytes) + " bytes");
  body.strand = strand;
  if (body.is_announced) return body.place;
  ++num_early_;
  body.bytes = bytes;
  body.kept = std::make_unique_for_overwrite<std::byte[]>(bytes);
  return body.kept.get();
}

void Bodies::end(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  Body& body = bodies_.at(number);
  body.is_there = true;
  if (body.is_announced) deliver(number, body);
}

// Call under the lock. Forgets the body.
void Bodies::deliver(std::uint64_t number, Body& body) {
  if (body.kept != nullptr && body.place != nullptr)
    copy_bytes(body.place, body.kept.get(), body.bytes);
  if (body.channel != nullptr) body.channel->finish(body.record);
  bodies_.erase(number);
}

std::vector<Bodies::Coming> Bodies::forget(LandingKey key, const Channel& channel) {
  std::vector<Coming> coming;
  const std::lock_guard lock(mutex_);
  for (auto& [number, body] : bodies_) {
    if (body.key != key || body.channel.get() != &channel) continue;
    body.key = kNoLanding;
    body.place = nullptr;
    if (body.strand != 0 && body.kept == nullptr)
      coming.push_back({number, body.strand});
  }
  return coming;
}

void Bodies::clear() {
  const std::lock_guard lock(mutex_);
  bodies_.clear();
}

}  // namespace allhands
