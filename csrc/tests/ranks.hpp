// Groups for tests: ranks as threads over one mapping of the same memory, so that the
// thread sanitizer sees what one rank writes and another reads.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "allhands/arena/arena.hpp"
#include "allhands/base/error.hpp"
#include "allhands/base/process.hpp"
#include "check.hpp"

namespace allhands::testing {

inline Membership membership(int rank, int size) {
  return {"test", rank,
          std::vector<ProcessIdentity>(static_cast<std::size_t>(size), this_process())};
}

inline Limits within(std::chrono::milliseconds limit) {
  return {Deadline::after(limit)};
}
inline Limits soon() { return within(std::chrono::seconds(60)); }

// Runs body(arena) as every rank of a fresh group.
template <class Body>
void run_arenas(int size, Body body) {
  const std::shared_ptr<SharedMemory> memory =
      SharedMemory::create(Layout(size).total_bytes());
  Arena::prepare(*memory, size, Tuning::for_ranks(size));
  run_ranks(size, [&](int rank) {
    Arena arena(memory, membership(rank, size));
    body(arena);
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

inline Buffer buffer_of(std::vector<float>& values) {
  return {values.data(), DType::Float32, values.size(), {}, 0};
}

}  // namespace allhands::testing
