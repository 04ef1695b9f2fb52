#include "allhands/transport/shm/ring.hpp"

namespace allhands {

std::byte* Ring::reserve(std::size_t bytes) {
  const std::size_t length = (bytes + sizeof(Prefix) + kLine - 1) / kLine * kLine;
  if (!has_room(length)) {
    seen_read_ = control_->read.load(std::memory_order_acquire);
    if (!has_room(length)) {
      // Either the reader sees the wish after it popped, or we see what it popped.
      control_->wants_room.store(1, std::memory_order_seq_cst);
      seen_read_ = control_->read.load(std::memory_order_seq_cst);
      if (!has_room(length)) return nullptr;
    }
  }
  std::uint64_t begin = control_->written.load(std::memory_order_relaxed);
  if (length > to_end(begin)) {
    reinterpret_cast<Prefix*>(at(begin))->length = kWrap;
    begin += to_end(begin);
  }
  reinterpret_cast<Prefix*>(at(begin))->length = length;
  reserved_end_ = begin + length;
  return at(begin) + sizeof(Prefix);
}

bool Ring::has_room(std::size_t length) const {
  const std::uint64_t begin = control_->written.load(std::memory_order_relaxed);
  const std::size_t skip = length > to_end(begin) ? to_end(begin) : 0;
  return begin + skip + length - seen_read_ <= capacity_;
}

void Ring::commit() {
  control_->written.store(reserved_end_, std::memory_order_release);
}

const std::byte* Ring::front() {
  const std::uint64_t written = control_->written.load(std::memory_order_acquire);
  std::uint64_t read = control_->read.load(std::memory_order_relaxed);
  if (read == written) return nullptr;
  if (reinterpret_cast<const Prefix*>(at(read))->length == kWrap) {
    read += to_end(read);
    control_->read.store(read, std::memory_order_release);
  }
  return at(read) + sizeof(Prefix);
}

bool Ring::pop() {
  const std::uint64_t read = control_->read.load(std::memory_order_relaxed);
  const auto* prefix = reinterpret_cast<const Prefix*>(at(read));
  control_->read.store(read + prefix->length, std::memory_order_seq_cst);
  return control_->wants_room.load(std::memory_order_seq_cst) != 0 &&
         control_->wants_room.exchange(0, std::memory_order_seq_cst) != 0;
}

void Ring::settle(std::size_t bytes) {
  const std::uint64_t before = control_->settled.load(std::memory_order_relaxed);
  control_->settled.store(before + bytes, std::memory_order_relaxed);
}

std::uint64_t Ring::settled() const {
  return control_->settled.load(std::memory_order_relaxed);
}

}  // namespace allhands
