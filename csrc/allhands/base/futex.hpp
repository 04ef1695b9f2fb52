// Sleeping on a 32-bit word in memory that processes share (futex(2), Linux).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace allhands {

// Sleeps while `word` holds `expected`, at most `limit`. May return early for no reason
// (a signal, a wake meant for another wait), so the caller must check its condition
// again.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected,
                std::chrono::nanoseconds limit);

// Wakes every thread that sleeps on `word`.
void futex_wake_all(std::atomic<std::uint32_t>& word);

}  // namespace allhands
