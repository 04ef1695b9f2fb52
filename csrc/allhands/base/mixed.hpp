// A check of words in shared memory, which something may overwrite by accident. It is
// no defence against an attacker, who would be a process of the same user.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace allhands {

// A word that depends on every bit of `words`, and on their order.
inline std::uint64_t mixed(std::initializer_list<std::uint64_t> words) {
  std::uint64_t result = 0x9e3779b97f4a7c15;
  for (const std::uint64_t word : words) {
    result = (result ^ word) * 0xff51afd7ed558ccd;
    result ^= result >> 32;
  }
  return result;
}

}  // namespace allhands
