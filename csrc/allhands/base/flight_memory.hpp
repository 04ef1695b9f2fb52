// Where a process keeps its flight records so that other processes of its user can
// watch them: an anonymous file, which they find by its name among the process's
// descriptors, and read.
//
// Watching needs no cooperation: a reader costs the process a few cache misses.
// src/allhands/debug/top/memory.py reads the file. The file has
//
//   [FlightHeader][rows, one for each group][departures][slots of the rings, by page]
//
// and takes memory only where something was written. The memory of a group returns to
// the system with the group. In a forked child the memory still belongs to the parent,
// so the child gives nothing back. Thread-safe.
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

// Totals of one ring over all its records. Written by the thread that begins a record.
struct alignas(64) FlightHead {
  std::atomic<std::uint64_t> last =
      0;  // number of the last record, or less for a while
  std::atomic<std::uint64_t> num_bytes = 0;  // of the arrays of all records
};

// The part of the memory for one group, apart from the slots.
struct FlightLines {
  static constexpr std::size_t kNameBytes = 48;

  // Odd while a group has the row; each group gets another number. Written last.
  alignas(64) std::atomic<std::uint64_t> generation = 0;
  std::uint64_t key = 0;  // the same on all ranks of a group
  std::uint32_t rank = 0, size = 0;
  // The position in the file; 0: there are none yet, or they are private.
  std::atomic<std::uint64_t> slots_at[2] = {0, 0};
  std::uint64_t num_slots = 0;  // of each ring
  FlightHead heads[2];          // of collectives and of messages
  // Threads that wait for a message, and for a Work.
  alignas(64) std::atomic<int> num_in_messages = 0;
  std::atomic<int> num_in_works = 0;
  std::uint64_t reserved = 0;
  char name[kNameBytes] = {};  // the group's name, cut; padded with zeros
};
static_assert(sizeof(FlightLines) == 256);

// The rank of the process in its world.
struct FlightHeader {
  static constexpr std::size_t kWorldBytes = 16, kHostBytes = 64;

  std::uint64_t magic;
  std::uint32_t version, row_bytes;
  std::atomic<std::uint32_t> num_rows;  // rows that have ever had a group
  std::atomic<std::uint32_t> num_departures;
  // Odd while the following fields are being written; 0: not written yet.
  std::atomic<std::uint32_t> generation;
  std::uint32_t rank, size, reserved_too;
  char world[kWorldBytes];  // the same on all its ranks
  char host[kHostBytes];    // cut; padded with zeros
};

// The flight file of one process, which its groups share.
class FlightMemory {
 public:
  static constexpr std::uint64_t kMagic = 0x746867696c666861;  // "ahflight"
  static constexpr std::uint32_t kVersion = 1;
  static constexpr std::size_t kRowsAt = 4096, kMostRows = 1024;
  // The file keeps the last so many departures.
  static constexpr std::size_t kMostDepartures = 4096;

  // Null if there is no descriptor or no memory for the file; then nobody can watch.
  static std::shared_ptr<FlightMemory> create();
  FlightMemory(const FlightMemory&) = delete;
  FlightMemory& operator=(const FlightMemory&) = delete;
  ~FlightMemory();

  // Tells readers which rank of which world the process is.
  void mark(std::string_view world, std::uint32_t rank, std::uint32_t size,
            std::string_view host);
  // False in a forked child, which gives nothing back and changes nothing.
  bool is_owner() const { return getpid() == owner_; }
  // Call in a forked child, so that readers do not take the memory for the child's.
  void leave_to_parent();

  // Notes for other processes that this one, as one rank of a group, has left it; `key`
  // stands for both.
  void note_departure(std::uint64_t key);
  // Whether process `pid` has noted that. False also if its file cannot be read now.
  static bool has_departed(int pid, std::uint64_t key);
  // The number of collectives that process `pid` has begun as `rank` of the group with
  // this key; see FlightLines. 0 also if its file cannot be read now.
  static std::uint64_t num_collectives(int pid, std::uint64_t key, int rank);

  // Returns lines that no group has, all zero except for the generation. Null: all are
  // used.
  FlightLines* take_lines();
  void give_back(FlightLines* lines);
  // Returns `bytes` of zeros, which are at `*at` in the file. Null: there is no memory.
  void* take(std::size_t bytes, std::uint64_t* at);
  void give_back(void* memory, std::size_t bytes, std::uint64_t at);

 private:
  FlightMemory(Fd fd, void* head);
  bool is_own() const;
  bool grow_to(std::size_t end);
  FlightHeader& header() { return *static_cast<FlightHeader*>(head_); }
  FlightLines* lines(std::size_t i);
  std::atomic<std::uint64_t>* departures();

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
