#include "allhands/transport/tcp/replay_buffer.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace allhands {

std::uint64_t ReplayBuffer::first_lent() const {
  std::uint64_t at = begin_;
  for (const Segment& segment : segments_) {
    if (segment.block == nullptr) break;
    at += segment.bytes.size();
  }
  return at;
}

void ReplayBuffer::reserve(std::size_t bytes, std::size_t num_parts) {
  const std::size_t num_blocks = blocks_for(lent_ + bytes);
  segments_.reserve(segments_.size() + num_parts + num_blocks);
  spares_.reserve(spares_.size() + segments_.capacity());
  if (block_ == nullptr) block_ = Block(new std::byte[kBlockBytes]);
  while (spares_.size() < num_blocks) spares_.emplace_back(new std::byte[kBlockBytes]);
}

// Copies as many of the first bytes as the current block has room for.
ReplayBuffer::Segment ReplayBuffer::copy(std::span<const std::byte> bytes) {
  if (filled_ == kBlockBytes) {
    Block full = std::exchange(block_, std::move(spares_.back()));
    spares_.pop_back();
    reuse(std::move(full));
    filled_ = 0;
  }
  std::byte* const to = block_.get() + filled_;
  const std::size_t count = std::min(kBlockBytes - filled_, bytes.size());
  std::memcpy(to, bytes.data(), count);
  filled_ += count;
  return {{to, count}, block_};
}

void ReplayBuffer::append(std::span<const std::byte> bytes) {
  size_ += bytes.size();
  while (!bytes.empty()) {
    Segment next = copy(bytes);
    const std::size_t count = next.bytes.size();
    bytes = bytes.subspan(count);
    if (!segments_.empty() && segments_.back().block == next.block) {
      auto& last = segments_.back().bytes;
      if (last.data() + last.size() == next.bytes.data()) {
        last = {last.data(), last.size() + count};
        continue;
      }
    }
    segments_.push_back(std::move(next));
  }
}

void ReplayBuffer::lend(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  segments_.push_back({bytes, nullptr});
  size_ += bytes.size();
  lent_ += bytes.size();
}

void ReplayBuffer::keep_lent() noexcept {
  for (std::size_t i = 0; lent_ != 0; ++i) {
    if (segments_[i].block != nullptr) continue;
    std::span<const std::byte> rest = segments_[i].bytes;
    lent_ -= rest.size();
    segments_[i] = copy(rest);
    rest = rest.subspan(segments_[i].bytes.size());
    for (; !rest.empty(); rest = rest.subspan(segments_[i].bytes.size())) {
      ++i;
      segments_.insert(segments_.begin() + static_cast<std::ptrdiff_t>(i), copy(rest));
    }
  }
}

void ReplayBuffer::reuse(Block block) {
  const bool is_free = block != nullptr && block.use_count() == 1;
  if (is_free && spares_.size() < kMaxSpares + blocks_for(lent_))
    spares_.push_back(std::move(block));
}

void ReplayBuffer::drop_front(std::size_t num_segments) {
  for (std::size_t i = 0; i < num_segments; ++i) {
    Segment& segment = segments_[i];
    if (segment.block == nullptr) lent_ -= segment.bytes.size();
    size_ -= segment.bytes.size();
    reuse(std::move(segment.block));
  }
  segments_.erase(segments_.begin(),
                  segments_.begin() + static_cast<std::ptrdiff_t>(num_segments));
}

void ReplayBuffer::drop(std::uint64_t to) {
  if (to >= end()) {
    drop_front(segments_.size());
    begin_ = to;
    filled_ = 0;  // the block's memory is in the caches
    return;
  }
  if (to <= begin_) return;
  std::size_t count = static_cast<std::size_t>(to - begin_), num_whole = 0;
  begin_ = to;
  for (; count >= segments_[num_whole].bytes.size(); ++num_whole)
    count -= segments_[num_whole].bytes.size();
  drop_front(num_whole);
  Segment& front = segments_.front();
  front.bytes = front.bytes.subspan(count);
  size_ -= count;
  if (front.block == nullptr) lent_ -= count;
}

std::size_t ReplayBuffer::gather(std::uint64_t from, std::span<iovec> parts) const {
  std::size_t count = 0;
  auto before = static_cast<std::size_t>(from - begin_);
  for (const Segment& segment : segments_) {
    if (count == parts.size()) break;
    const std::size_t skipped = std::min(before, segment.bytes.size());
    before -= skipped;
    const auto bytes = segment.bytes.subspan(skipped);
    if (bytes.empty()) continue;
    parts[count++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  }
  return count;
}

void ReplayBuffer::shrink() {
  spares_.resize(std::min(spares_.size(), blocks_for(lent_)));
  if (segments_.empty()) {
    block_.reset();
    filled_ = 0;
  }
}

}  // namespace allhands
