// Groups for tests: ranks as threads over one mapping of the same memory, so that the
// thread sanitizer sees what one rank writes and another reads.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "allhands/arena/arena.hpp"
#include "allhands/base/error.hpp"
#include "allhands/host/process.hpp"
#include "check.hpp"
#include "collectives.hpp"

namespace allhands::testing {

inline Membership membership(int rank, int size) {
  return {"test", rank,
          std::vector<ProcessIdentity>(static_cast<std::size_t>(size), this_process())};
}

inline Limits within(std::chrono::milliseconds limit) {
  return {Deadline::after(limit)};
}
// Only what hangs meets it, however slow the machine and the sanitizer are.
inline Limits soon() { return within(std::chrono::seconds(600)); }

// Yields until `is_met()`; what never is fails.
template <class Condition>
void wait_until(Condition is_met) {
  const Deadline last = Deadline::after(std::chrono::seconds(100));
  while (!is_met()) {
    CHECK(!last.is_expired());
    std::this_thread::yield();
  }
}

// Runs body(arena) as every rank of a fresh group.
template <class Body>
void run_arenas(int size, const Tuning& tuning, Body body) {
  const std::shared_ptr<SharedMemory> memory =
      SharedMemory::create(Layout(size).total_bytes());
  Arena::prepare(*memory, size, tuning);
  run_ranks(size, [&](int rank) {
    Arena arena(memory, membership(rank, size));
    body(arena);
  });
}

template <class Body>
void run_arenas(int size, Body body) {
  run_arenas(size, Tuning::for_ranks(size), body);
}

// Whether nothing has gone through this rank's slots but what ranks tell each other
// when they meet.
inline bool is_staging_untouched(const Arena& arena) {
  const std::size_t told = 48 * (1 + static_cast<std::size_t>(arena.size()));
  for (std::uint64_t i = 0; i < 2; ++i) {
    const std::byte* from = arena.slot(arena.rank(), i) + told;
    const std::size_t bytes = arena.chunk_bytes() - told;
    // All bytes are alike, and the first is zero.
    if (*from != std::byte{0} || std::memcmp(from, from + 1, bytes - 1) != 0)
      return false;
  }
  return true;
}

// The same in a group that has found out that its ranks can read each other's memory,
// and that moves nothing in another way.
template <class Body>
void run_reading_arenas(int size, const Tuning& tuning, Body body) {
  run_arenas(size, tuning, [&](Arena& arena) {
    barrier(arena, soon());
    CHECK(arena.can_read_peers());
    body(arena);
    CHECK(is_staging_untouched(arena));
  });
}

// What `call` throws; the test fails if it throws nothing.
template <class Call>
Error error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  CHECK(!"it did not throw");
  std::abort();
}

inline bool has(const Error& error, const std::string& text) {
  return std::string(error.what()).find(text) != std::string::npos;
}

constexpr std::size_t kPeriod = 1000;

// Element i of what `rank` passes; sums of several ranks' are exact.
inline float value(int rank, std::size_t i) {
  return static_cast<float>(rank + 1) + static_cast<float>(i % kPeriod);
}

// The first ones of these, up to a period. Longer arrays are made of copies of them,
// and compared with them, by the C library: sanitizers make a loop over elements dear.
class Values {
 public:
  Values(int rank, std::size_t count) {
    for (std::size_t i = 0; i < std::min(count, kPeriod); ++i)
      period_[i] = value(rank, i);
  }
  std::span<const float> first(std::size_t count) const {
    return std::span(period_).first(std::min(count, kPeriod));
  }

 private:
  std::array<float, kPeriod> period_;
};

inline std::vector<float> values(int rank, std::size_t count) {
  const Values made(rank, count);
  std::vector<float> result;
  result.reserve(count);
  while (result.size() < count) {
    const auto part = made.first(count - result.size());
    result.insert(result.end(), part.begin(), part.end());
  }
  return result;
}

// Whether `data` is that.
inline bool are_values(int rank, std::span<const float> data) {
  const Values made(rank, data.size());
  while (!data.empty()) {
    const auto part = made.first(data.size());
    if (std::memcmp(part.data(), data.data(), part.size_bytes()) != 0) return false;
    data = data.subspan(part.size());
  }
  return true;
}

inline Buffer buffer_of(std::vector<float>& values) {
  return {values.data(), DType::Float32, values.size(), {}, 0};
}

// Parts of that, one behind the other.
inline std::vector<Buffer> cut(std::vector<float>& data,
                               const std::vector<std::size_t>& sizes) {
  std::vector<Buffer> parts;
  std::size_t at = 0;
  for (const std::size_t size : sizes) {
    parts.push_back(buffer_of(data).slice(at, size));
    at += size;
  }
  return parts;
}

}  // namespace allhands::testing
