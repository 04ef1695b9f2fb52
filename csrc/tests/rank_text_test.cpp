// How messages name ranks, from one to hundreds: in one line, and each that counts.
#include "allhands/base/rank_text.hpp"

#include <numeric>
#include <string>
#include <vector>

#include "ranks.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

std::vector<int> from_to(int first, int last) {
  std::vector<int> ranks(static_cast<std::size_t>(last - first + 1));
  std::iota(ranks.begin(), ranks.end(), first);
  return ranks;
}

void test_ranges() {
  CHECK(ranges({}) == "" && ranges({7}) == "7");
  CHECK(ranges({0, 2}) == "0, 2" && ranges({1, 2}) == "1, 2");
  CHECK(ranges({1, 2, 3}) == "1-3" && ranges({0, 2, 3, 4, 9}) == "0, 2-4, 9");
  std::vector<int> odd;
  for (int rank = 1; rank < 100; rank += 2) odd.push_back(rank);
  CHECK(ranges(odd) == "1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, ...");
  CHECK(counted_ranges(odd, 100) == ranges(odd) + " (50 of 100)");
  CHECK(counted_ranges({0, 1, 2, 3}, 100) == "0-3");
}

void test_few_are_told_one_by_one_and_many_together() {
  const auto number_of = [](int rank) { return rank; };
  const auto one = [](int rank) { return "rank " + std::to_string(rank); };
  const auto fact = [](int rank, bool is_plural) -> std::string {
    if (rank == 50) return " left";
    return is_plural ? " are dead" : " is dead";
  };
  const auto tell = [&](const std::vector<int>& ranks) {
    return tell_of(ranks, 64, number_of, one, fact);
  };
  CHECK(tell({3, 50}) == "rank 3 is dead, rank 50 left");
  CHECK(tell({3, 4, 5, 6}) ==
        "rank 3 is dead, rank 4 is dead, rank 5 is dead, rank 6 is dead");
  CHECK(tell({1, 2, 3, 4, 9, 50}) == "ranks 1-4, 9 (5 of 64) are dead, rank 50 left");
  const auto each = [](int rank, bool) { return std::to_string(rank); };
  CHECK(tell_of(from_to(0, 63), 64, number_of, one, each).size() < 200);
}

// Rank 0 of 300, in whose memory the others have not come.
void with_one_of_300(const std::function<void(Arena&)>& body) {
  const auto memory = SharedMemory::create(Layout(300).total_bytes());
  Arena::prepare(*memory, 300, Tuning::for_ranks(300));
  Arena arena(memory, membership(0, 300));
  body(arena);
}

void test_a_failure_of_more_than_256_ranks_is_told_whole() {
  with_one_of_300([](Arena& arena) {
    arena.fail(Error(ErrorKind::RankFailed, "they died", from_to(1, 299)));
    CHECK(arena.told_failure()->ranks() == from_to(1, 299));
  });
}

void test_a_timeout_of_many_ranks_is_one_line() {
  with_one_of_300([](Arena& arena) {
    const Error error =
        error_of([&] { barrier(arena, within(std::chrono::milliseconds(10))); });
    CHECK(error.kind() == ErrorKind::Timeout && error.ranks() == from_to(1, 299));
    CHECK(has(error,
              "missing [1-299 (299 of 300)]; ranks 1-299 (299 of 300) have called "
              "nothing on this group yet"));
  });
}

void test_a_mismatch_of_many_ranks_is_one_line() {
  run_arenas(12, [](Arena& arena) {
    const bool is_other = arena.rank() == 7;
    std::vector<float> data(1);
    const Error error = error_of([&] {
      if (is_other)
        broadcast(arena, buffer_of(data), 0, soon());
      else
        barrier(arena, soon());
    });
    CHECK(error.kind() == ErrorKind::Mismatch);
    CHECK(has(error, "ranks 0-6, 8-11 (11 of 12): barrier()"));
    CHECK(has(error, is_other ? "; rank 7 (this process): broadcast("
                              : "; rank 7: broadcast("));
    CHECK(error.ranks() == (is_other
                                ? std::vector<int>{0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11}
                                : std::vector<int>{7}));
  });
}

}  // namespace

int main() {
  test_ranges();
  test_few_are_told_one_by_one_and_many_together();
  test_a_failure_of_more_than_256_ranks_is_told_whole();
  test_a_timeout_of_many_ranks_is_one_line();
  test_a_mismatch_of_many_ranks_is_one_line();
}
