#include "allhands/calibration/rehearsal.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "allhands/base/start_thread.hpp"
#include "allhands/transport/shm/peer_memory.hpp"

namespace allhands {
namespace {

using Clock = Rehearsal::Clock;

constexpr std::size_t kMost = Figures::kSizes.back();
// The bytes that a rank stages before the ranks meet.
constexpr std::size_t kChunk = std::size_t{128} << 10;
// How often a thread looks at the other one before it lets it run, in case that has no
// CPU.
constexpr int kSpins = 200;

// A range of addresses that one page of the kernel's tables serves and one lock guards.
// Ranks read from different processes, so the two threads must not wait for each other
// here.
constexpr std::size_t kTable = std::size_t{2} << 20;

// A large page has the size of a table.
constexpr std::size_t kLarge = kTable;
// Rounds in large pages, the first to warm up, and how many of them count as enough.
constexpr int kMostLargeRounds = 3, kLeastLargeRounds = 2;

enum class End { None, Late, Refused };

// Memory of both threads, with tables of its own for each, in small or large pages.
class Ground {
 public:
  Ground(std::size_t tables_each, int advice)
      : each_(tables_each * kTable),
        start_(mmap(nullptr, bytes(), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (start_ == MAP_FAILED) throw std::bad_alloc();
    madvise(start_, bytes(), advice);
  }
  ~Ground() { munmap(start_, bytes()); }
  Ground(const Ground&) = delete;
  Ground& operator=(const Ground&) = delete;

  std::byte* of(std::size_t self) const {
    const std::size_t lead = -reinterpret_cast<std::uintptr_t>(start_) % kTable;
    return static_cast<std::byte*>(start_) + lead + self * each_;
  }

 private:
  std::size_t bytes() const { return 2 * each_ + kTable; }

  const std::size_t each_;
  void* const start_;
};

// Allocates all pages at once, in half the time that they would take one by one.
void populate(std::byte* memory, std::size_t bytes) {
#if defined(MADV_POPULATE_WRITE)
  if (madvise(memory, bytes, MADV_POPULATE_WRITE) == 0) return;
#endif
  std::memset(memory, 0, bytes);  // before Linux 5.14
}

// The data of one of the two threads.
struct alignas(64) Place {
  Place(std::byte* memory, std::byte* large)
      : input(memory),
        output(input + kMost),
        slots{output + kMost, output + kMost + kChunk},
        large(large) {}

  // Both by its own thread, so that the memory is near its CPU.
  void furnish() {
    static_assert(2 * (kMost + kChunk) <= kTable);
    populate(input, 2 * (kMost + kChunk));
  }

  void enlarge() {  // from here on with arrays in large pages
    populate(large, 2 * kLarge);
    input = large;
    output = large + kLarge;
  }

  std::atomic<std::uint32_t> clock = 0;
  std::byte* input;
  std::byte* output;
  const std::array<std::byte*, 2> slots;
  std::byte* const large;
};

struct Stage {
  const Rehearsal& rehearsal;
  const Clock::time_point end = rehearsal.now() + rehearsal.limit;
  const Ground ground = {1, MADV_NOHUGEPAGE};
  const Ground large_ground = {2, MADV_HUGEPAGE};
  std::array<Place, 2> places = {Place(ground.of(0), large_ground.of(0)),
                                 Place(ground.of(1), large_ground.of(1))};
  std::atomic<End> ended = End::None;
  std::atomic<bool> is_reading_slow = false;

  void finish(End reason) {
    End none = End::None;
    ended.compare_exchange_strong(none, reason);
  }
};

// One of the two threads.
class Actor {
 public:
  Actor(Stage& stage, std::size_t self)
      : stage_(stage), mine_(stage.places[self]), peer_(stage.places[1 - self]) {}

  // Returns false if the rehearsal has ended.
  bool by_slots(std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; at += kChunk) {
      const std::size_t length = std::min(kChunk, bytes - at);
      const std::size_t slot = chunk_++ & 1;
      std::memcpy(mine_.slots[slot], mine_.input + at, length);
      if (!meet()) return false;
      std::memcpy(mine_.output + at, peer_.slots[slot], length);
    }
    return true;
  }

  bool by_reading(std::size_t bytes) {
    if (!meet()) return false;
    const auto address = reinterpret_cast<std::uint64_t>(peer_.input);
    if (read_memory_of(getpid(), address, mine_.output, bytes) != PeerRead::Done) {
      stage_.finish(End::Refused);
      return false;
    }
    return meet();
  }

  bool meet() {
    const std::uint32_t turn = mine_.clock.load(std::memory_order_relaxed) + 1;
    mine_.clock.store(turn, std::memory_order_release);
    for (int looks = 1; peer_.clock.load(std::memory_order_acquire) < turn; ++looks) {
      if (looks % kSpins != 0) continue;
      if (stage_.ended.load(std::memory_order_relaxed) != End::None) return false;
      if (stage_.rehearsal.now() > stage_.end) {
        stage_.finish(End::Late);
        return false;
      }
      sched_yield();
    }
    return true;
  }

 private:
  Stage& stage_;
  Place& mine_;
  Place& peer_;
  std::size_t chunk_ = 0;
};

// The part of one thread. What it counts is the same for both.
class Part {
 public:
  Part(Stage& stage, std::size_t self)
      : stage_(stage), mine_(stage.places[self]), actor_(stage, self) {
    mine_.furnish();
  }

  // Returns the number of complete rounds of all sizes.
  int perform(Figures& best) {
    const Rehearsal& rehearsal = stage_.rehearsal;
    for (int round = 0; round < rehearsal.most_rounds; ++round) {
      if (round == 1) {  // the first round was to warm up
        best.slots.fill(UINT64_MAX);
        best.read.fill(UINT64_MAX);
      }
      for (std::size_t i = 0; i < Figures::kSizes.size(); ++i)
        if (!exchange(Figures::kSizes[i], best.slots[i], best.read[i])) return round;
      if (rehearsal.now() > stage_.end) stage_.finish(End::Late);
    }
    return rehearsal.most_rounds;
  }

  // The same in large pages, if reading small pages does not win.
  int perform_large(Figures& best) {
    if (best.break_even() >= Figures::kLargePages) stage_.is_reading_slow = true;
    if (!actor_.meet() || !stage_.is_reading_slow) return 0;
    mine_.enlarge();
    for (int round = 0; round < kMostLargeRounds; ++round) {
      if (round <= 1) best.large_slots = best.large_read = UINT64_MAX;
      if (!exchange(kLarge, best.large_slots, best.large_read)) return round;
      if (stage_.rehearsal.now() > stage_.end) stage_.finish(End::Late);
    }
    return kMostLargeRounds;
  }

 private:
  // Both ways, and keeps the least times. Returns false if the rehearsal has ended.
  bool exchange(std::size_t bytes, std::uint64_t& slots, std::uint64_t& read) {
    return actor_.meet() && time([&] { return actor_.by_slots(bytes); }, slots) &&
           actor_.meet() && time([&] { return actor_.by_reading(bytes); }, read);
  }

  template <typename Exchange>
  bool time(Exchange exchange, std::uint64_t& least) {
    const Clock::time_point start = stage_.rehearsal.now();
    if (!exchange()) return false;
    const auto took = stage_.rehearsal.now() - start;
    const auto count =
        std::chrono::duration_cast<std::chrono::nanoseconds>(took).count();
    least = std::min(least, static_cast<std::uint64_t>(std::max<long>(count, 1)));
    return true;
  }

  Stage& stage_;
  Place& mine_;
  Actor actor_;
};

bool move_to(int cpu) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(cpu, &only);
  return sched_setaffinity(0, sizeof(only), &only) == 0;
}

// The first two CPUs.
std::optional<std::array<int, 2>> pair_of(const cpu_set_t& cpus) {
  std::array<int, 2> pair;
  std::size_t found = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE && found < pair.size(); ++cpu)
    if (CPU_ISSET(cpu, &cpus)) pair[found++] = cpu;
  if (found < pair.size()) return std::nullopt;
  return pair;
}

}  // namespace

std::optional<Figures> Rehearsal::run(const cpu_set_t& cpus) const {
  const auto pair = pair_of(cpus);
  if (!pair) return std::nullopt;
  Figures best[2] = {};
  int rounds[2] = {}, large_rounds[2] = {};
  std::unique_ptr<Stage> stage;
  std::vector<std::thread> threads;
  try {
    stage = std::make_unique<Stage>(*this);
    threads.reserve(2);
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  }
  const auto act = [&](std::size_t self) {
    if (!move_to((*pair)[self])) return stage->finish(End::Refused);
    Part part(*stage, self);
    rounds[self] = part.perform(best[self]);
    if (stage->ended == End::None) large_rounds[self] = part.perform_large(best[self]);
  };
  try {
    for (const std::size_t self : {0u, 1u})
      threads.push_back(start_thread([&act, self] { act(self); }));
  } catch (const std::exception&) {  // without a rehearsal, the figures are unknown
    stage->finish(End::Refused);
  }
  for (std::thread& thread : threads) thread.join();
  if (std::min(rounds[0], rounds[1]) < least_rounds) return std::nullopt;
  for (std::size_t i = 0; i < Figures::kSizes.size(); ++i) {  // the slower of the two
    best[0].slots[i] = std::max(best[0].slots[i], best[1].slots[i]);
    best[0].read[i] = std::max(best[0].read[i], best[1].read[i]);
  }
  const bool has_large =
      std::min(large_rounds[0], large_rounds[1]) >= kLeastLargeRounds;
  best[0].large_slots =
      has_large ? std::max(best[0].large_slots, best[1].large_slots) : 0;
  best[0].large_read = has_large ? std::max(best[0].large_read, best[1].large_read) : 0;
  return best[0];
}

}  // namespace allhands
