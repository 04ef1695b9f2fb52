// Ranks as processes that exchange messages while something writes over the memory that
// these go through. No rank may crash or wait beyond its limits, whatever is written.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "allhands/base/shared_memory.hpp"
#include "allhands/engine/progress_engine.hpp"
#include "allhands/transport/shm/shm_transport.hpp"
#include "rank_processes.hpp"
#include "ranks.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

constexpr int kSize = 3;
constexpr std::chrono::milliseconds kLimit{500};  // of a call
constexpr std::chrono::seconds kHang{100};        // far beyond what all calls may take

// Eager messages, single copies and, of every other element, pieces; some that others
// wait for, some that the engine's thread moves.
void exchange(ProgressEngine& engine, int rank, int round) {
  constexpr std::size_t kCounts[] = {1, 100, 5000, 50'000};
  const std::size_t count = kCounts[round % 4];
  std::vector<float> out(2 * count, 1), in(2 * count);
  const auto buffer = [&](std::vector<float>& data) {
    Buffer all = {data.data(), DType::Float32, count, {}, 0};
    if (round % 3 == 0)
      all.dimensions = {{static_cast<std::int64_t>(count), 2 * sizeof(float)}};
    return all;
  };
  const int right = (rank + 1) % kSize, left = (rank + kSize - 1) % kSize;
  const Limits limits = within(kLimit);
  const TransferPtr received =
      engine.post_recv(buffer(in), left, round % 5, limits.deadline);
  if (round % 2 == 0) engine.drive(received);
  try {
    engine.send(buffer(out), right, round % 5, limits);
    engine.wait(received, limits, ProgressEngine::AtEnd::GiveUp);
  } catch (const Error& error) {
    engine.give_up({&received, 1}, error);
    throw;
  }
}

[[noreturn]] void run_rank(const std::shared_ptr<SharedMemory>& memory, Aside& aside,
                           int rank) {
  alarm(kHang.count());
  const Membership members = aside.meet(rank, kSize);
  const Tuning tuning = Tuning::for_ranks(kSize);
  {
    ProgressEngine engine(
        std::make_unique<ShmTransport>(memory, memory->data(), members, tuning),
        members, tuning);
    const auto start = Deadline::Clock::now();
    try {
      for (int round = 0; round < 2000; ++round) {
        exchange(engine, rank, round);
        ++aside.num_rounds;
      }
      engine.flush(within(kLimit));
    } catch (const Error&) {
      // It has to be told somehow.
    }
    CHECK(Deadline::Clock::now() - start < kHang / 2);
  }
  _exit(0);
}

class Scribbler {
 public:
  Scribbler(std::byte* memory, unsigned seed) : memory_(memory), random_(seed) {}

  void scribble() {
    std::byte* const at = memory_ + place();
    write_nonsense(random_, at, at + 8 * kMostWords);
  }

 private:
  std::uint64_t pick(std::uint64_t limit) { return random_() % limit; }

  // Doorbells, the list of rings, or the control words or the first records of a pair.
  std::size_t place() {
    const MessageMemory layout(kSize);
    const auto offset = [&](const std::byte* at) {
      return static_cast<std::size_t>(at - memory_);
    };
    const int from = static_cast<int>(pick(kSize)), to = static_cast<int>(pick(kSize));
    const std::size_t ring = find_ring(from, to);
    switch (pick(5)) {
      case 0:
        return offset(reinterpret_cast<std::byte*>(&layout.doorbell(memory_, 0))) +
               8 * pick(kSize * sizeof(Doorbell) / 8);
      case 1:
        return ring - sizeof(Slices::Control) + 8 * pick(sizeof(Slices::Control) / 8);
      case 2:
        return ring + 8 * pick(sizeof(RingControl) / 8);
      case 3:  // how many rings there are, or the list of them
        return pick(4) == 0
                   ? offset(reinterpret_cast<std::byte*>(&layout.head(memory_)))
                   : offset(reinterpret_cast<std::byte*>(
                         &layout.entry(memory_, from, to))) /
                         8 * 8;
      default:
        return ring + sizeof(RingControl) + 8 * pick(512);
    }
  }

  // The one before, where this pair has none, or none that can be found any more.
  std::size_t find_ring(int from, int to) {
    try {
      const RingPlace place = MessageMemory(kSize).ring(memory_, from, to);
      last_ring_ = static_cast<std::size_t>(place.ring - memory_);
    } catch (const LinkError&) {
    }
    return last_ring_;
  }

  std::byte* memory_;
  std::size_t last_ring_ = sizeof(Slices::Control);
  std::mt19937_64 random_;
};

void test_no_rank_crashes_or_hangs(unsigned seed) {
  const std::shared_ptr<SharedMemory> memory =
      SharedMemory::create(ShmTransport::memory_bytes(kSize));
  Aside& aside = Aside::make();
  const std::vector<pid_t> ranks =
      fork_each(kSize, [&](int rank) { run_rank(memory, aside, rank); });
  const auto await_round = [&](int round, Deadline::Duration limit) {
    const Deadline last = Deadline::after(limit);
    while (aside.num_rounds < round && !last.is_expired()) std::this_thread::yield();
  };
  await_round(10, 10 * kLimit);  // they may be late on a busy machine, and give up
  Scribbler scribbler(memory->data(), seed);
  std::size_t num_running = ranks.size();
  bool are_well = true;
  while (num_running > 0) {
    scribbler.scribble();
    await_round(aside.num_rounds + static_cast<int>(seed % 4) * 20,
                std::chrono::milliseconds(20));
    int status = 0;
    if (waitpid(-1, &status, WNOHANG) <= 0) continue;
    --num_running;
    are_well &= is_well(status);
  }
  if (!are_well) std::fprintf(stderr, "seed %u\n", seed);
  CHECK(are_well);
  aside.unmap();
}

}  // namespace

int main(int argc, char** argv) {
  if (run_asked(argc, argv, test_no_rank_crashes_or_hangs)) return 0;
  for (unsigned seed = 1; seed <= 15; ++seed) test_no_rank_crashes_or_hangs(seed);
}
