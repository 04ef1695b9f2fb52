// A check of words in shared memory, which something may write over by accident. No
// proof against an attacker, who is a process of the same user.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace allhands {

// One word that hangs on every bit of these, and on their order.
inline std::uint64_t mixed(std::initializer_list<std::uint64_t> words) {
  std::uint64_t result = 0x9e3779b97f4a7c15;
  for (const std::uint64_t word : words) {
    result = (result ^ word) * 0xff51afd7ed558ccd;
    result ^= result >> 32;
  }
  return result;
}

}  // namespace allhands
