// Ranks of a test as processes, where one of them, or the test, writes over memory that
// they share.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
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
