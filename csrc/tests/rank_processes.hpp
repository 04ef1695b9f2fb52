// Ranks of a test as processes, where one of them, or the test, writes over memory that
// they share.
#pragma once

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <random>
#include <thread>
#include <vector>

#include "allhands/host/membership.hpp"
#include "check.hpp"

namespace allhands::testing {

// What the processes tell each other aside.
struct Aside {
  static constexpr int kMostRanks = 4;

  static Aside& make() {
    void* const memory = mmap(nullptr, sizeof(Aside), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    return *new (memory) Aside{};
  }
  void unmap() { munmap(this, sizeof(*this)); }

  // Waits for all ranks, whose processes it returns.
  Membership meet(int rank, int size) {
    const ProcessIdentity self = this_process();
    pids[rank] = self.pid;
    starts[rank] = self.start;
    ++num_here;
    while (num_here < size) std::this_thread::yield();
    std::vector<ProcessIdentity> peers;
    for (int peer = 0; peer < size; ++peer)
      peers.push_back({self.host, pids[peer], starts[peer]});
    return {"test", rank, peers};
  }

  std::atomic<int> num_here;
  std::atomic<std::uint64_t> starts[kMostRanks];
  std::atomic<int> pids[kMostRanks];
  std::atomic<int> num_rounds;
};

// Runs body(rank), which must not return, in a process for each rank.
template <class Body>
std::vector<pid_t> fork_each(int size, const Body& body) {
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) body(rank);
    ranks.push_back(pid);
  }
  return ranks;
}

// Whether a process has ended by itself, with no error.
inline bool is_well(int status) {
  if (WIFSIGNALED(status))
    std::fprintf(stderr, "a rank was ended by signal %d\n", WTERMSIG(status));
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Runs test(seed) for the seeds that a command line asks for: one, or the first and the
// last of many. Returns false if it asks for none.
template <class Test>
bool run_asked(int argc, char** argv, const Test& test) {
  if (argc < 2) return false;
  const int first = std::atoi(argv[1]), last = argc > 2 ? std::atoi(argv[2]) : first;
  for (int seed = first; seed <= last; ++seed) test(static_cast<unsigned>(seed));
  return true;
}

inline constexpr std::size_t kMostWords = 64;

// Overwrites one word, or up to kMostWords, with what may do harm.
inline void write_nonsense(std::mt19937_64& random, std::byte* at,
                           const std::byte* end) {
  const auto pick = [&](std::uint64_t limit) { return random() % limit; };
  const std::uint64_t words[] = {0,         ~std::uint64_t{0},
                                 pick(256), pick(1 << 20),
                                 random(),  std::uint64_t{1} << pick(64)};
  const std::uint64_t word = words[pick(std::size(words))];
  const std::size_t num_words = pick(4) == 0 ? 1 + pick(kMostWords) : 1;
  const auto room = static_cast<std::size_t>(end - at) / sizeof(word);
  for (std::size_t i = 0; i < std::min(num_words, room); ++i)
    std::memcpy(at + sizeof(word) * i, &word, sizeof(word));
}

}  // namespace allhands::testing
