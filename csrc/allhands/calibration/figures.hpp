// How long this host takes for one exchange between two ranks, measured for the two
// ways in which data can move if arrays are not shared.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace allhands {

struct Figures {
  using Times = std::array<std::uint64_t, 3>;  // nanoseconds, by size

  // The bytes that each rank gets from the other.
  static constexpr std::array<std::size_t, 3> kSizes = {
      std::size_t{8} << 10, std::size_t{64} << 10, std::size_t{256} << 10};
  static constexpr std::uint64_t kNever = UINT64_MAX;
  // The largest break-even in small pages.
  static constexpr std::uint64_t kLargest = 2 * kSizes.back();

  // Arrays of this size and more have large pages if their library asks for them, as
  // NumPy does. The kernel then reads them several times as fast.
  static constexpr std::uint64_t kLargePages = std::uint64_t{4} << 20;

  Times slots;  // staged in shared memory, and copied out
  Times read;   // read from the other process's memory by a system call
  // The same for 2 MiB in large pages. Zero if not measured: reading wins in small
  // pages, or there was no time.
  std::uint64_t large_slots = 0;
  std::uint64_t large_read = 0;

  // The size from which on reading takes less time than the slots, interpolated
  // linearly between the measured sizes, and beyond them up to kLargest. It is the
  // smallest of them if reading always wins. If reading does not win up to kLargest, it
  // is kLargePages, or kNever if it was measured not to win there.
  // Reading takes `more` nanoseconds beside what was measured.
  std::uint64_t break_even(std::uint64_t more = 0) const;
};

}  // namespace allhands
