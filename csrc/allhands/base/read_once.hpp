#pragma once

#include <atomic>
#include <cstdint>

namespace allhands {

// A word that another process may write over at any time: what was checked of it is
// what is used, since the compiler does not read it again.
inline std::uint64_t read_once(std::uint64_t& word) {
  return std::atomic_ref(word).load(std::memory_order_relaxed);
}

}  // namespace allhands
