// Records that have come and were not popped, each contiguous, but for bodies that have
// landed elsewhere. One writer and one reader, which may be different threads. It
// bounds nothing: the writer does that.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <span>

#include "allhands/transport/landings.hpp"

namespace allhands {

class RecordQueue {
 public:
  // Writer: room for a record, aligned to 16 bytes, until commit(); `landed` of it goes
  // elsewhere.
  std::byte* reserve(std::size_t bytes, Landed landed = {});
  // Writer: the reserved record is whole.
  void commit();

  // From any thread.
  bool has_record() const { return num_records_.load(std::memory_order_acquire) != 0; }
  // Reader: the oldest record, or nothing; valid until pop().
  std::span<const std::byte> front();
  // Reader: what has landed elsewhere of the front record; there is one.
  Landed landed();
  // Reader: drops the front record; its size, with what has landed elsewhere.
  std::size_t pop();

 private:
  struct Block {
    std::unique_ptr<std::byte[]> memory;
    std::size_t capacity;
    std::size_t written = 0;
    std::size_t read = 0;
  };

  // In front of each record.
  struct Prefix {
    std::uint32_t bytes;   // that are here
    std::uint32_t landed;  // elsewhere
    LandingKey key;
  };

  static Block make_block(std::size_t bytes);
  Prefix prefix();

  std::mutex mutex_;          // guards what follows, but for the records' bytes
  std::deque<Block> blocks_;  // the writer works on the last
  std::size_t reserved_ = 0;  // bytes of the record that are here
  std::atomic<std::size_t> num_records_ = 0;
};

}  // namespace allhands
