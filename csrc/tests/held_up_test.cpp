// Who is named when a wait takes too long: not the ranks that have not come because
// they wait for others, as far as they tell so.
#include <memory>
#include <vector>

#include "allhands/arena/awaited.hpp"
#include "ranks.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

// A group whose memory the test can look at, and write to.
struct Group {
  Group(int size, const Tuning& tuning)
      : layout(size), memory(SharedMemory::create(layout.total_bytes())) {
    Arena::prepare(*memory, size, tuning);
  }
  explicit Group(int size) : Group(size, Tuning::for_ranks(size)) {}
  RankControl& control(int rank) { return layout.control(memory->data(), rank); }
  Awaited awaited(int rank) { return Awaited::of(control(rank).awaits); }

  Layout layout;
  std::shared_ptr<SharedMemory> memory;
};

// Rank 0 waits for rank 2, and that for rank 3, which does not come. Rank 1 needs all.
void test_who_waits_for_another_is_not_named() {
  Group group(4);
  run_ranks(4, [&](int rank) {
    Arena arena(group.memory, membership(rank, 4));
    barrier(arena, soon());
    const std::uint32_t next = arena.clock() + 1;
    const auto waits_for = [&](int waiting, int other) {
      const Awaited awaited = group.awaited(waiting);
      return awaited.rank == other && awaited.clock == next;
    };
    if (rank == 3) return wait_until([&] { return arena.has_failed(); });
    const Error error = error_of([&] {
      if (rank == 0) return arena.wait(2, next);
      if (rank == 2) return arena.wait(3, next);
      wait_until([&] { return waits_for(0, 2) && waits_for(2, 3); });
      barrier(arena, within(std::chrono::milliseconds(20)));
    });
    CHECK(error.kind() == ErrorKind::Timeout);
    CHECK(error.ranks() == std::vector<int>{3});
    CHECK(has(error, "missing [3]; rank 3 was last in barrier #1"));
  });
}

// In a tree rank 0 leads ranks 1 and 2, and rank 2 leads rank 3. Rank 2 comes, and does
// not tell rank 3 that all have. Ranks 0 and 1 are told, and in the next meeting.
void test_who_is_not_told_that_all_have_come_is_not_named() {
  Tuning tuning = Tuning::for_ranks(4);
  tuning.tree_ranks = 2;
  Group group(4, tuning);
  const std::uint32_t places[] = {1, 1, 2, 2};
  run_ranks(4, [&](int rank) {
    Arena arena(group.memory, membership(rank, 4));
    group.control(rank).place = 1 << 16 | places[rank];
    barrier(arena, soon());
    const std::uint32_t clock = arena.clock() + 1;
    if (rank == 2) {
      arena.begin(2, {.op = Op::Barrier}, soon());
      arena.publish();
      arena.wait(3, clock);
      group.control(2).gathered.clock = clock;
      return wait_until([&] { return arena.has_failed(); });
    }
    const Error error = error_of([&] {
      barrier(arena, soon());
      wait_until([&] { return rank == 0 || group.awaited(0).clock == clock + 1; });
      wait_until([&] { return rank == 0 || group.awaited(3).clock == clock; });
      barrier(arena, rank == 0 ? soon() : within(std::chrono::milliseconds(20)));
    });
    CHECK(error.kind() == ErrorKind::Timeout);
    CHECK(error.ranks() == std::vector<int>{2});
  });
}

void test_the_word_is_gone_after_the_wait() {
  Group group(3);
  run_ranks(3, [&](int rank) {
    Arena arena(group.memory, membership(rank, 3));
    if (rank == 2)
      wait_until([&] { return group.control(0).awaits && group.control(1).awaits; });
    barrier(arena, soon());
    CHECK(group.control(rank).awaits == 0);
  });
}

void test_words_name_what_they_were_made_of() {
  for (const int rank : {0, 1, 65'535})
    for (int signal = 0; signal < RankControl::kNumSignals; ++signal)
      for (const std::uint32_t clock : {0U, 7U, ~0U}) {
        const Awaited awaited = Awaited::of(Awaited{rank, signal, clock}.word());
        CHECK(awaited.rank == rank);
        CHECK(awaited.signal == signal);
        CHECK(awaited.clock == clock);
      }
}

// Of two ranks, neither of which comes, those that are named where the words in their
// memory are these.
std::vector<int> named(std::uint64_t word_of_1, std::uint64_t word_of_2) {
  Group group(3);
  Arena arena(group.memory, membership(0, 3));
  group.control(1).awaits = word_of_1;
  group.control(2).awaits = word_of_2;
  return error_of([&] { barrier(arena, within(std::chrono::milliseconds(20))); })
      .ranks();
}

void test_words_that_make_no_sense() {
  const std::vector<int> both = {1, 2};
  const auto awaits = [](int rank, int signal, std::uint32_t clock) {
    return Awaited{rank, signal, clock}.word();
  };
  CHECK(named(0, 0) == both);
  for (int signal = 0; signal < RankControl::kNumSignals; ++signal) {
    CHECK(named(awaits(2, signal, 1), 0) == std::vector<int>{2});
    CHECK(named(0, awaits(1, signal, 1)) == std::vector<int>{1});
    CHECK(named(awaits(2, signal, 1), awaits(1, signal, 1)) == both);
    CHECK(named(awaits(2, signal, 0), 0) == both);  // it has come
    CHECK(named(awaits(1, signal, 1), 0) == both);
    CHECK(named(awaits(3, signal, 1), 0) == both);
  }
  CHECK(named(~std::uint64_t{0}, std::uint64_t{1} << 63) == both);
  CHECK(named(4711, std::uint64_t{1} << 32 | 1) == std::vector<int>{1});
}

}  // namespace

int main() {
  test_who_waits_for_another_is_not_named();
  test_who_is_not_told_that_all_have_come_is_not_named();
  test_the_word_is_gone_after_the_wait();
  test_words_name_what_they_were_made_of();
  test_words_that_make_no_sense();
}
