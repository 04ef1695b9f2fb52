// A ring of records in shared memory with one writer and one reader.
//
// A record is contiguous and has at most max_record() bytes; a small one lies within
// one cache line. The writer reserves room, fills it and commits; the reader looks at
// the front record and pops it. Neither ever waits: who finds no room or no record
// comes back later.
//
// Positions count bytes since the beginning and never wrap; the difference of the two
// is what lies in the ring. Thread rule: one thread at a time per side.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace allhands {

class Ring {
 public:
  // The part of it that both sides see, zero at first.
  struct Control {
    alignas(64) std::atomic<std::uint64_t> written;
    alignas(64) std::atomic<std::uint64_t> read;
    std::atomic<std::uint64_t> settled;     // see settle()
    std::atomic<std::uint32_t> wants_room;  // the writer came and found too little
  };

  // Memory that a ring of `capacity` data bytes takes; a multiple of 64.
  static std::size_t memory_bytes(std::size_t capacity) {
    return sizeof(Control) + capacity;
  }

  // `memory`: memory_bytes(capacity), aligned to 64; `capacity` a power of two.
  Ring(std::byte* memory, std::size_t capacity)
      : control_(reinterpret_cast<Control*>(memory)),
        data_(memory + sizeof(Control)),
        capacity_(capacity) {}

  // Two records always fit, so writer and reader can work at the same time.
  std::size_t max_record() const { return capacity_ / 2 - kLine - sizeof(Prefix); }

  // Writer: room for a record of `bytes`, or null while the reader is behind; then its
  // pop() says so.
  std::byte* reserve(std::size_t bytes);
  // Writer: publishes the reserved record.
  void commit();

  // Reader: the oldest record, or null.
  const std::byte* front();
  // Reader: gives the front record's room back. True: the writer waits for room.
  bool pop();
  // Reader: so much of what it has popped and put aside is used up. The writer sees the
  // sum, and so how much the reader keeps.
  void settle(std::size_t bytes);
  std::uint64_t settled() const;
  // Reader, any thread: there is a record that nobody has popped. Who asks will read it
  // next, so it is fetched meanwhile.
  bool has_record() const {
    const std::uint64_t read = control_->read.load(std::memory_order_acquire);
    if (control_->written.load(std::memory_order_acquire) == read) return false;
    __builtin_prefetch(at(read));
    return true;
  }
  // Everything that was committed has been popped.
  bool is_empty() const { return !has_record(); }

 private:
  static constexpr std::size_t kLine = 64;
  // In front of every record; records begin on cache lines.
  struct Prefix {
    std::uint64_t length;  // of both, in whole lines; kWrap: go on at the start
  };
  static constexpr std::uint64_t kWrap = 0;

  bool has_room(std::size_t length) const;
  std::byte* at(std::uint64_t position) const {
    return data_ + (position & (capacity_ - 1));
  }
  std::size_t to_end(std::uint64_t position) const {
    return capacity_ - (position & (capacity_ - 1));
  }

  Control* control_;
  std::byte* data_;
  std::size_t capacity_;
  // The writer's. What it last saw of `read` spares it the reader's cache line as long
  // as that shows room.
  std::uint64_t reserved_end_ = 0;
  std::uint64_t seen_read_ = 0;
};

}  // namespace allhands
