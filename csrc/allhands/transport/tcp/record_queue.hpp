// Records that have come and were not popped, each contiguous. One writer and one
// reader, which may be different threads. It bounds nothing: the writer does that.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <span>

namespace allhands {

class RecordQueue {
 public:
  // Writer: room for a record, aligned to 16 bytes, until commit().
  std::byte* reserve(std::size_t bytes);
  // Writer: the reserved record is whole.
  void commit();

  // From any thread.
  bool has_record() const { return num_records_.load(std::memory_order_acquire) != 0; }
  // Reader: the oldest record, or nothing; valid until pop().
  std::span<const std::byte> front();
  // Reader: drops the front record; its size.
  std::size_t pop();

 private:
  struct Block {
    std::unique_ptr<std::byte[]> memory;
    std::size_t capacity;
    std::size_t written = 0;
    std::size_t read = 0;
  };

  static Block make_block(std::size_t bytes);

  std::mutex mutex_;          // guards what follows, but for the records' bytes
  std::deque<Block> blocks_;  // the writer works on the last
  std::size_t reserved_ = 0;  // bytes of the record, its length before it not counted
  std::atomic<std::size_t> num_records_ = 0;
};

}  // namespace allhands
