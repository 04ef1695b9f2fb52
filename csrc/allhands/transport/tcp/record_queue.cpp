#include "allhands/transport/tcp/record_queue.hpp"

#include <algorithm>
#include <cstring>

namespace allhands {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{128} << 10;
constexpr std::size_t kAlign = 16;
constexpr std::size_t kLengthBytes = kAlign;  // of a record, in front of it

std::size_t footprint(std::size_t bytes) {
  return kLengthBytes + (bytes + kAlign - 1) / kAlign * kAlign;
}

}  // namespace

RecordQueue::Block RecordQueue::make_block(std::size_t bytes) {
  const std::size_t capacity = std::max(bytes, kBlockBytes);
  return {std::make_unique_for_overwrite<std::byte[]>(capacity), capacity};
}

std::byte* RecordQueue::reserve(std::size_t bytes) {
  const std::size_t needed = footprint(bytes);
  const std::lock_guard lock(mutex_);
  // Memory that was used just now is in the caches.
  if (blocks_.size() == 1 && blocks_[0].read == blocks_[0].written)
    blocks_[0].read = blocks_[0].written = 0;
  if (blocks_.empty() || blocks_.back().capacity - blocks_.back().written < needed)
    blocks_.push_back(make_block(needed));
  reserved_ = bytes;
  return blocks_.back().memory.get() + blocks_.back().written + kLengthBytes;
}

void RecordQueue::commit() {
  const std::lock_guard lock(mutex_);
  Block& block = blocks_.back();
  std::memcpy(block.memory.get() + block.written, &reserved_, sizeof(reserved_));
  block.written += footprint(reserved_);
  num_records_.fetch_add(1, std::memory_order_release);
}

std::span<const std::byte> RecordQueue::front() {
  if (!has_record()) return {};
  const std::lock_guard lock(mutex_);
  // What was read to its end stays only while it is the last.
  while (blocks_.front().read == blocks_.front().written) blocks_.pop_front();
  const std::byte* const at = blocks_.front().memory.get() + blocks_.front().read;
  std::size_t bytes;
  std::memcpy(&bytes, at, sizeof(bytes));
  return {at + kLengthBytes, bytes};
}

std::size_t RecordQueue::pop() {
  const std::size_t bytes = front().size();
  const std::lock_guard lock(mutex_);
  blocks_.front().read += footprint(bytes);
  num_records_.fetch_sub(1, std::memory_order_release);
  return bytes;
}

}  // namespace allhands
