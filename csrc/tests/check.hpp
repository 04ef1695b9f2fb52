// What the core's tests are written with: CHECK, CHECK_THROWS, and ranks as threads.
// A test is a program; it exits 0 only if every check held.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#define CHECK(condition)                                                    \
  do {                                                                      \
    if (!(condition)) {                                                     \
      std::fprintf(stderr, "%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, \
                   #condition);                                             \
      std::exit(1);                                                         \
    }                                                                       \
  } while (false)

#define CHECK_THROWS(expression, type)                                         \
  do {                                                                         \
    bool thrown = false;                                                       \
    try {                                                                      \
      (void)(expression);                                                      \
    } catch (const type&) {                                                    \
      thrown = true;                                                           \
    }                                                                          \
    if (!thrown) {                                                             \
      std::fprintf(stderr, "%s:%d: %s did not throw %s\n", __FILE__, __LINE__, \
                   #expression, #type);                                        \
      std::exit(1);                                                            \
    }                                                                          \
  } while (false)

namespace allhands::testing {

// Whether this runs under a sanitizer, which takes ten times as long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif

// Runs body(rank) for every rank, each in its own thread; an escaped exception fails.
inline void run_ranks(int size, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&body, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        std::exit(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace allhands::testing
