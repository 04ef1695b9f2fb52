#include "allhands/transport/tcp/replay_buffer.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace allhands {

void ReplayBuffer::reserve(std::size_t bytes) {
  while (blocks_.size() * kBlockBytes < at_ + size_ + bytes) add_block();
}

void ReplayBuffer::append(std::span<const std::byte> bytes) {
  reserve(bytes.size());
  while (!bytes.empty()) {
    const std::size_t at = at_ + size_;
    const std::size_t count = std::min(kBlockBytes - at % kBlockBytes, bytes.size());
    std::memcpy(blocks_[at / kBlockBytes].get() + at % kBlockBytes, bytes.data(),
                count);
    size_ += count;
    bytes = bytes.subspan(count);
  }
}

void ReplayBuffer::add_block() {
  if (spares_.empty()) {
    blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(kBlockBytes));
    return;
  }
  blocks_.push_back(std::move(spares_.back()));
  spares_.pop_back();
}

void ReplayBuffer::drop_front_block() {
  if (spares_.size() < kMaxSpares) spares_.push_back(std::move(blocks_.front()));
  blocks_.pop_front();
}

void ReplayBuffer::drop(std::uint64_t to) {
  if (to >= end()) {
    // Keeps the front block: its memory is in the caches.
    while (blocks_.size() > 1) drop_front_block();
    begin_ = to;
    at_ = size_ = 0;
    return;
  }
  if (to <= begin_) return;
  const auto count = static_cast<std::size_t>(to - begin_);
  begin_ = to;
  size_ -= count;
  for (at_ += count; at_ >= kBlockBytes; at_ -= kBlockBytes) drop_front_block();
}

std::size_t ReplayBuffer::gather(std::uint64_t from, std::span<iovec> parts) const {
  std::size_t count = 0;
  std::size_t at = at_ + static_cast<std::size_t>(from - begin_);
  for (const std::size_t end = at_ + size_; at < end && count < parts.size();) {
    const std::size_t in_block = at % kBlockBytes;
    const std::size_t bytes = std::min(kBlockBytes - in_block, end - at);
    parts[count++] = {blocks_[at / kBlockBytes].get() + in_block, bytes};
    at += bytes;
  }
  return count;
}

void ReplayBuffer::shrink() {
  spares_.clear();
  if (size_ != 0) return;
  blocks_.clear();
  at_ = 0;
}

}  // namespace allhands
