#include "allhands/transport/shm/ring.hpp"

#include <string>

#include "allhands/transport/link.hpp"

namespace allhands {
namespace {

[[noreturn]] void throw_overwritten(const char* what, std::uint64_t number) {
  throw LinkError(std::string("a ring of messages in shared memory has been written "
                              "over by something else: ") +
                  what + " is " + std::to_string(number));
}

}  // namespace

std::byte* RingWriter::reserve(std::size_t bytes) {
  const std::size_t length = (bytes + sizeof(Prefix) + kLine - 1) / kLine * kLine;
  if (!has_room(length)) {
    see_read(std::memory_order_acquire);
    if (!has_room(length)) {
      // Either the reader sees the request for room after its pop, or this sees the
      // pop.
      control_->wants_room.store(1, std::memory_order_seq_cst);
      see_read(std::memory_order_seq_cst);
      if (!has_room(length)) return nullptr;
    }
  }
  std::uint64_t begin = written_;
  if (length > to_end(begin)) {
    prefix(begin).store(kWrap, std::memory_order_relaxed);
    begin += to_end(begin);
  }
  prefix(begin).store(length, std::memory_order_relaxed);
  reserved_end_ = begin + length;
  return at(begin) + sizeof(Prefix);
}

void RingWriter::see_read(std::memory_order order) {
  const std::uint64_t read = control_->read.load(order);
  if (written_ - read > capacity_) throw_overwritten("its reader's position", read);
  seen_read_ = read;
}

bool RingWriter::has_room(std::size_t length) const {
  const std::size_t skip = length > to_end(written_) ? to_end(written_) : 0;
  return written_ + skip + length - seen_read_ <= capacity_;
}

std::span<const std::byte> RingReader::front() {
  const std::uint64_t written = control_->written.load(std::memory_order_acquire);
  std::uint64_t read = read_.load(std::memory_order_relaxed);
  if (read == written) return {};
  const std::uint64_t num_bytes = written - read;
  if (num_bytes > capacity_ || num_bytes % kLine != 0)
    throw_overwritten("its writer's position", written);
  std::uint64_t length = prefix(read).load(std::memory_order_relaxed);
  std::uint64_t left = num_bytes;
  if (length == kWrap && to_end(read) < num_bytes) {
    left -= to_end(read);
    read += to_end(read);
    read_.store(read, std::memory_order_relaxed);
    control_->read.store(read, std::memory_order_release);
    length = prefix(read).load(std::memory_order_relaxed);
  }
  if (length == 0 || length % kLine != 0 || length > left || length > to_end(read))
    throw_overwritten("the length of a record", length);
  front_length_ = length;
  return {at(read) + sizeof(Prefix), length - sizeof(Prefix)};
}

bool RingReader::pop() {
  const std::uint64_t read = read_.load(std::memory_order_relaxed) + front_length_;
  read_.store(read, std::memory_order_relaxed);
  control_->read.store(read, std::memory_order_seq_cst);
  return control_->wants_room.load(std::memory_order_seq_cst) != 0 &&
         control_->wants_room.exchange(0, std::memory_order_seq_cst) != 0;
}

}  // namespace allhands
