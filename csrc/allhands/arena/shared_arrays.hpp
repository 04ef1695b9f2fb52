// The shared arrays of a group, as one rank has them mapped.
//
// A shared array is one piece of memory that every rank of the group maps whole. It has
// a part for each rank; a rank's own array is its part. All parts have the same layout.
// So the number of the shared array and the offset in a part say where an array lies,
// and each rank finds the others' arrays from these two.
//
// Thread-safe: arrays are freed by any thread, while an operation looks others up.
// A thread that finds one keeps it alive by having an array in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "allhands/base/buffer.hpp"
#include "allhands/base/shared_memory.hpp"

namespace allhands {

// A shared array as one rank has it mapped.
struct SharedRegion {
  std::uint64_t number;  // the same on every rank, never 0
  std::byte* base;       // where this rank has mapped it
  std::size_t stride;    // bytes from a rank's part to the next one's
  std::size_t bytes;     // of a part
  int rank;              // this one

  std::byte* part(int of_rank) const {
    return base + static_cast<std::size_t>(of_rank) * stride;
  }
};

// Finds, by memory or by number, the regions that this rank has mapped.
class SharedArrays {
 public:
  // Notes that the group has made a shared array; before the first, none is looked up.
  // Every rank calls this in the same operation, so all agree.
  void mark_used() { is_used_ = true; }
  bool is_used() const { return is_used_; }

  void add(const SharedRegion& region, std::weak_ptr<const SharedMemory> memory);
  void remove(std::uint64_t number);
  // The region in which this rank's part holds all of `buffer`; none for private memory
  // and for strided arrays.
  std::optional<SharedRegion> find(const Buffer& buffer) const;

  // A region by its number, and what keeps it mapped meanwhile; none once it is freed.
  struct Held {
    SharedRegion region;
    std::shared_ptr<const SharedMemory> memory;
  };
  std::optional<Held> hold(std::uint64_t number) const;

 private:
  struct Entry {
    SharedRegion region;
    std::weak_ptr<const SharedMemory> memory;
  };

  bool is_used_ = false;  // only seen by operations, which run one at a time
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;  // by address
};

}  // namespace allhands
