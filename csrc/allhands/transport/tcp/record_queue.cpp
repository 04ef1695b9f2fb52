#include "allhands/transport/tcp/record_queue.hpp"

#include <algorithm>
#include <cstring>

namespace allhands {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{128} << 10;
constexpr std::size_t kAlign = 16;

// The bytes of a record with its prefix.
std::size_t footprint(std::size_t bytes) {
  return kAlign + (bytes + kAlign - 1) / kAlign * kAlign;
}

}  // namespace

RecordQueue::Block RecordQueue::make_block(std::size_t bytes) {
  const std::size_t capacity = std::max(bytes, kBlockBytes);
  return {std::make_unique_for_overwrite<std::byte[]>(capacity), capacity};
}

std::byte* RecordQueue::reserve(std::size_t bytes, Landed landed) {
  static_assert(sizeof(Prefix) == kAlign);
  const std::size_t needed = footprint(bytes);
  const std::lock_guard lock(mutex_);
  // Starts at the beginning of the block again: this memory is in the caches.
  if (blocks_.size() == 1 && blocks_[0].read == blocks_[0].written)
    blocks_[0].read = blocks_[0].written = 0;
  if (blocks_.empty() || blocks_.back().capacity - blocks_.back().written < needed)
    blocks_.push_back(make_block(needed));
  Block& block = blocks_.back();
  const Prefix prefix = {static_cast<std::uint32_t>(bytes),
                         static_cast<std::uint32_t>(landed.bytes), landed.key};
  std::memcpy(block.memory.get() + block.written, &prefix, sizeof(prefix));
  reserved_ = bytes;
  return block.memory.get() + block.written + kAlign;
}

void RecordQueue::commit() {
  const std::lock_guard lock(mutex_);
  blocks_.back().written += footprint(reserved_);
  ++num_committed_;
  publish();
}

std::uint64_t RecordQueue::commit_unfinished() {
  const std::lock_guard lock(mutex_);
  blocks_.back().written += footprint(reserved_);
  unfinished_.insert(num_committed_);
  return num_committed_++;
}

void RecordQueue::finish(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  unfinished_.erase(number);
  publish();
}

// Lets the reader see what stands in front of the first unfinished record. Call under
// the lock.
void RecordQueue::publish() {
  const std::uint64_t end = unfinished_.empty() ? num_committed_ : *unfinished_.begin();
  num_records_.store(end - num_popped_, std::memory_order_release);
}

// The prefix of the front record. Call under the lock.
RecordQueue::Prefix RecordQueue::prefix() {
  // A block that was read to its end stays only if it is the last.
  while (blocks_.front().read == blocks_.front().written) blocks_.pop_front();
  Prefix prefix;
  std::memcpy(&prefix, blocks_.front().memory.get() + blocks_.front().read,
              sizeof(prefix));
  return prefix;
}

std::span<const std::byte> RecordQueue::front() {
  if (!has_record()) return {};
  const std::lock_guard lock(mutex_);
  const std::size_t bytes = prefix().bytes;
  return {blocks_.front().memory.get() + blocks_.front().read + kAlign, bytes};
}

Landed RecordQueue::landed() {
  const std::lock_guard lock(mutex_);
  const Prefix front = prefix();
  return {front.key, front.landed};
}

std::size_t RecordQueue::pop() {
  const std::lock_guard lock(mutex_);
  const Prefix front = prefix();
  blocks_.front().read += footprint(front.bytes);
  ++num_popped_;
  publish();
  return std::size_t{front.bytes} + front.landed;
}

}  // namespace allhands
