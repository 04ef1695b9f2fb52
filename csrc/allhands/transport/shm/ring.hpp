// A ring of records in shared memory with one writer and one reader.
//
// A record is contiguous and has at most max_record() bytes; a small one lies within
// one cache line. Neither side ever waits: a side that finds no room or no record comes
// back later.
//
// Positions count bytes since the beginning and never wrap; the difference between the
// writer's and the reader's is what lies in the ring. Each side keeps its own position
// in private memory and only publishes it to the other. So whatever another process
// writes over the ring, both sides stay within it, and find out. Thread rule: one
// thread at a time per side.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace allhands {

// The part of a ring that both sides see, zero at first; the data follows.
struct RingControl {
  alignas(64) std::atomic<std::uint64_t> written;
  alignas(64) std::atomic<std::uint64_t> read;
  std::atomic<std::uint64_t> settled;     // see RingReader::settle()
  std::atomic<std::uint32_t> wants_room;  // the writer came and found too little
  std::atomic<std::uint32_t> owner;       // who writes to whom, see MessageMemory

  // The memory that a ring of `capacity` data bytes takes; a multiple of 64.
  static std::size_t memory_bytes(std::size_t capacity) {
    return sizeof(RingControl) + capacity;
  }
};

// What both sides know of a ring.
class RingSide {
 public:
  // `memory`: RingControl::memory_bytes(capacity), aligned to 64; `capacity` a power of
  // two.
  RingSide(std::byte* memory, std::size_t capacity)
      : control_(reinterpret_cast<RingControl*>(memory)),
        data_(memory + sizeof(RingControl)),
        capacity_(capacity) {}

  // Two records always fit, so writer and reader can work at the same time.
  std::size_t max_record() const { return capacity_ / 2 - kLine - sizeof(Prefix); }

 protected:
  static constexpr std::size_t kLine = 64;
  // In front of every record; records begin on cache lines.
  using Prefix =
      std::atomic<std::uint64_t>;            // length of both, in whole lines; or kWrap
  static constexpr std::uint64_t kWrap = 0;  // go on at the start

  std::byte* at(std::uint64_t position) const {
    return data_ + (position & (capacity_ - 1));
  }
  Prefix& prefix(std::uint64_t position) const {
    return *reinterpret_cast<Prefix*>(at(position));
  }
  std::size_t to_end(std::uint64_t position) const {
    return capacity_ - (position & (capacity_ - 1));
  }

  RingControl* control_;
  std::byte* data_;
  std::size_t capacity_;
};

// The side of a ring that puts records in.
class RingWriter : public RingSide {
 public:
  using RingSide::RingSide;

  // Room for a record of `bytes`, or null while the reader is behind; then the reader's
  // pop() says that the writer waits. Throws LinkError.
  std::byte* reserve(std::size_t bytes);
  // Publishes the reserved record.
  void commit() {
    written_ = reserved_end_;
    control_->written.store(written_, std::memory_order_release);
  }
  // What the reader has settled.
  std::uint64_t settled() const {
    return control_->settled.load(std::memory_order_relaxed);
  }
  // Everything that was committed has been popped.
  bool is_empty() const {
    return control_->read.load(std::memory_order_acquire) == written_;
  }

 private:
  bool has_room(std::size_t length) const;
  void see_read(std::memory_order order);

  std::uint64_t written_ = 0;
  std::uint64_t reserved_end_ = 0;
  // The reader's position as last seen. As long as it shows room, the writer need not
  // read the reader's cache line.
  std::uint64_t seen_read_ = 0;
};

// The side of a ring that takes records out.
class RingReader : public RingSide {
 public:
  using RingSide::RingSide;

  // May be called from any thread. The caller will read the record next, so this
  // prefetches it.
  bool has_record() const {
    const std::uint64_t read = read_.load(std::memory_order_relaxed);
    if (control_->written.load(std::memory_order_acquire) == read) return false;
    __builtin_prefetch(at(read));
    return true;
  }
  // The oldest record, in whole lines, or nothing. Throws LinkError.
  std::span<const std::byte> front();
  // Frees the room of the front record. Returns whether the writer waits for room.
  bool pop();
  // See Link.
  void settle(std::size_t bytes) {
    settled_ += bytes;
    control_->settled.store(settled_, std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint64_t> read_ = 0;
  std::uint64_t front_length_ = 0;
  std::uint64_t settled_ = 0;
};

}  // namespace allhands
