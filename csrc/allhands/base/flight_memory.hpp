// Where a process keeps its flight records so that others of its user can watch them:
// an anonymous file that they find among its descriptors, by its name, and read.
//
// Nobody is asked for anything and nothing is told: who reads costs the process a few
// cache misses. src/allhands/debug/top/memory.py reads it. The file has
//
//   [FlightHeader][rows, one for each group][slots of the rings, page by page]
//
// and takes room only where something was written. What a group took goes back to the
// system with it. In a forked child the memory is its parent's still, so nothing is
// given back there. Thread-safe.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "allhands/base/fd.hpp"

namespace allhands {

// What one ring counts, of all that it has recorded. Written by whoever begins a
// record.
struct alignas(64) FlightHead {
  std::atomic<std::uint64_t> last =
      0;  // number of the last record; or less, for a while
  std::atomic<std::uint64_t> num_bytes = 0;  // of the arrays of all records
};

// What the memory has of a group, apart from the slots.
struct FlightLines {
  static constexpr std::size_t kNameBytes = 48;

  // Odd while the row has a group, and another number with each. Written last.
  alignas(64) std::atomic<std::uint64_t> generation = 0;
  std::uint64_t key = 0;  // the same on all ranks of a group
  std::uint32_t rank = 0, size = 0;
  // In the file; 0: there are none yet, or they are private.
  std::atomic<std::uint64_t> slots_at[2] = {0, 0};
  std::uint64_t num_slots = 0;  // of each ring
  FlightHead heads[2];          // of collectives and of messages
  // Threads that wait for a message, and for a Work.
  alignas(64) std::atomic<int> num_in_messages = 0;
  std::atomic<int> num_in_works = 0;
  std::uint64_t reserved = 0;
  char name[kNameBytes] = {};  // of the group, cut; filled with zeros
};
static_assert(sizeof(FlightLines) == 256);

// The rank that the process is in its world.
struct FlightHeader {
  static constexpr std::size_t kWorldBytes = 16, kHostBytes = 64;

  std::uint64_t magic;
  std::uint32_t version, row_bytes;
  std::atomic<std::uint32_t> num_rows;  // that have ever had a group
  std::uint32_t reserved;
  // Odd while what follows is written, 0: it was not yet.
  std::atomic<std::uint32_t> generation;
  std::uint32_t rank, size, reserved_too;
  char world[kWorldBytes];  // the same on all its ranks
  char host[kHostBytes];    // cut; filled with zeros
};

// The file of one process, which its groups share.
class FlightMemory {
 public:
  static constexpr std::uint64_t kMagic = 0x746867696c666861;  // "ahflight"
  static constexpr std::uint32_t kVersion = 1;
  static constexpr std::size_t kRowsAt = 4096, kMostRows = 1024;

  // Null where there is no descriptor or no memory for it: then nobody can watch.
  static std::shared_ptr<FlightMemory> create();
  FlightMemory(const FlightMemory&) = delete;
  FlightMemory& operator=(const FlightMemory&) = delete;
  ~FlightMemory();

  // Lets others see which rank of which world the process is.
  void mark(std::string_view world, std::uint32_t rank, std::uint32_t size,
            std::string_view host);
  // False in a forked child, which gives back and changes nothing.
  bool is_owner() const { return getpid() == owner_; }
  // In a forked child: nobody takes it for the child's.
  void leave_to_parent();

  // Lines that no group has, all zero but for the generation. Null: there are no more.
  FlightLines* take_lines();
  void give_back(FlightLines* lines);
  // `bytes` of zeros, which are `*at` in the file. Null: there are none.
  void* take(std::size_t bytes, std::uint64_t* at);
  void give_back(void* memory, std::size_t bytes, std::uint64_t at);

 private:
  FlightMemory(Fd fd, void* head);
  bool is_own() const;
  bool grow_to(std::size_t end);
  FlightHeader& header() { return *static_cast<FlightHeader*>(head_); }
  FlightLines* lines(std::size_t i);

  void* const head_;
  const pid_t owner_;
  std::mutex mutex_;  // guards what follows
  Fd fd_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  std::vector<FlightLines*> free_lines_;
  std::size_t end_;                               // of the file
  std::multimap<std::size_t, std::size_t> free_;  // offsets by bytes
};

}  // namespace allhands
