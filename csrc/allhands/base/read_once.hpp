#pragma once

#include <atomic>
#include <cstdint>

namespace allhands {

// Reads a word that another process may overwrite at any time. The compiler does not
// read it again, so the value that was checked is the value that is used.
inline std::uint64_t read_once(std::uint64_t& word) {
  return std::atomic_ref(word).load(std::memory_order_relaxed);
}

}  // namespace allhands
