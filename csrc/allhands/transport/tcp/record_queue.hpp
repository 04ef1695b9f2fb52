// Records that have come and were not popped. Each is contiguous, except for a body
// that has landed elsewhere. One writer and one reader, which may be different threads.
// The queue has no limit of its own: the writer keeps one.
//
// A record may have a body that is still to come, by another way. The reader sees the
// record, and those behind it, once the body is there.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <span>

#include "allhands/transport/landings.hpp"

namespace allhands {

class RecordQueue {
 public:
  // Writer: returns room for a record, aligned to 16 bytes and valid until commit().
  // `landed` is the part of the record that goes elsewhere.
  std::byte* reserve(std::size_t bytes, Landed landed = {});
  // Writer: the reserved record is complete.
  void commit();
  // Writer: the reserved record lacks its body. Returns its number, for finish().
  std::uint64_t commit_unfinished();
  // Any thread: the body is there, so that its memory changes no more.
  void finish(std::uint64_t number);

  // May be called from any thread.
  bool has_record() const { return num_records_.load(std::memory_order_acquire) != 0; }
  // Reader: the oldest record, or nothing; valid until pop().
  std::span<const std::byte> front();
  // Reader: the part of the front record that has landed elsewhere. Needs a front
  // record.
  Landed landed();
  // Reader: drops the front record, and returns its size with the part that has landed.
  std::size_t pop();

 private:
  struct Block {
    std::unique_ptr<std::byte[]> memory;
    std::size_t capacity;
    std::size_t written = 0;
    std::size_t read = 0;
  };

  // Stands in front of each record.
  struct Prefix {
    std::uint32_t bytes;   // bytes in the queue
    std::uint32_t landed;  // bytes elsewhere
    LandingKey key;
  };

  static Block make_block(std::size_t bytes);
  Prefix prefix();
  void publish();

  std::mutex mutex_;          // guards what follows, except the bytes of records
  std::deque<Block> blocks_;  // the writer uses the last one
  std::size_t reserved_ = 0;  // bytes in the queue of the reserved record
  std::uint64_t num_committed_ = 0;
  std::uint64_t num_popped_ = 0;
  std::set<std::uint64_t> unfinished_;        // the numbers of these records
  std::atomic<std::size_t> num_records_ = 0;  // that the reader may see
};

}  // namespace allhands
