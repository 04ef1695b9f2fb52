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
      std::size_t{8} << 10, std::size_t{64} << 10, std::size_t{512} << 10};
  static constexpr std::uint64_t kNever = UINT64_MAX;

  Times slots;  // staged in shared memory, and copied out
  Times read;   // read from the other process's memory by a system call

  // The size from which on reading takes less time than the slots, interpolated
  // linearly between the measured sizes. It is the smallest of them if reading always
  // wins, and kNever if it does not win at the largest.
  std::uint64_t break_even() const;
};

}  // namespace allhands
