// What the host was found to take for one exchange of two ranks, by the two ways that
// data may go where arrays are not shared.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace allhands {

struct Figures {
  using Times = std::array<std::uint64_t, 3>;  // nanoseconds, by size

  // Of what each rank gets from the other.
  static constexpr std::array<std::size_t, 3> kSizes = {
      std::size_t{8} << 10, std::size_t{64} << 10, std::size_t{512} << 10};
  static constexpr std::uint64_t kNever = UINT64_MAX;

  Times slots;  // staged in shared memory, and copied out
  Times read;   // read from the other's memory by a system call

  // The size from which on reading takes less time than the slots, straight lines
  // between the sizes that were measured: the smallest of them where it always does,
  // kNever where it does not at the largest.
  std::uint64_t break_even() const;
};

}  // namespace allhands
