// Which way an operation goes, and that the ranks go it.
#include "allhands/comm/select.hpp"

#include <cstring>
#include <set>
#include <vector>

#include "check.hpp"
#include "ranks.hpp"

namespace allhands::testing {
namespace {

constexpr std::size_t kKiB = std::size_t{1} << 10, kMiB = kKiB << 10;

// The best way where all arrays allow any.
Way best_of(const Case& c, const Tuning& tuning) {
  const Ways ways = select(c, tuning);
  for (const Way way :
       {Way::Mapped, Way::Cooperative, Way::Read, Way::Tree, Way::OnePhase, Way::Slots})
    if (ways.may(way)) return way;
  CHECK(!"no way");
  std::abort();
}

Way best(Op op, std::size_t bytes, int ranks, bool reads = true, bool shared = false) {
  return best_of({op, bytes, ranks, reads, shared}, Tuning::for_ranks(ranks, ranks));
}

void test_the_table() {
  CHECK(best(Op::AllReduce, 8, 2) == Way::OnePhase);
  CHECK(best(Op::AllReduce, 32, 32) == Way::OnePhase);
  CHECK(best(Op::AllReduce, 32, 33) == Way::Tree);
  CHECK(best(Op::AllReduce, 33, 33) == Way::OnePhase);
  CHECK(best(Op::AllReduce, 16 * kKiB, 2) == Way::OnePhase);
  CHECK(best(Op::AllReduce, 16 * kKiB + 8, 2) == Way::Slots);
  CHECK(best(Op::AllReduce, 16 * kKiB, 4) == Way::Slots);
  CHECK(best(Op::AllReduce, 4 * kMiB, 2) == Way::Read);
  CHECK(best(Op::AllReduce, 4 * kMiB, 2, false) == Way::Slots);
  CHECK(best(Op::AllReduce, 24 * kMiB, 2) == Way::Slots);
  CHECK(best(Op::AllReduce, 24 * kMiB, 2, true, true) == Way::Mapped);
  CHECK(best(Op::AllReduce, 8, 2, true, true) == Way::OnePhase);
  CHECK(best(Op::Broadcast, kMiB, 2) == Way::Cooperative);
  CHECK(best(Op::Broadcast, 64 * kMiB, 2) == Way::Cooperative);
  CHECK(best(Op::Broadcast, kMiB, 3) == Way::Read);
  CHECK(best(Op::Broadcast, 64 * kMiB, 3) == Way::Slots);
  CHECK(best(Op::Gather, 64 * kKiB, 4) == Way::Cooperative);
  CHECK(best(Op::AllGather, kMiB, 4) == Way::Read);
  CHECK(best(Op::AllGather, 12 * kMiB, 4) == Way::Slots);
  CHECK(best(Op::Scatter, 22 * kKiB, 4) == Way::Read);
  CHECK(best(Op::Scatter, 21 * kKiB, 4) == Way::Slots);
  CHECK(best(Op::Scatter, 64 * kKiB, 2) == Way::Read);
  CHECK(best(Op::ReduceScatter, 128 * kKiB, 2) == Way::Read);
  CHECK(best(Op::Reduce, 64 * kMiB, 2) == Way::Slots);
  CHECK(best(Op::AllToAll, 64 * kKiB, 4) == Way::Read);
  CHECK(best(Op::AllToAll, 8, 4, true, true) == Way::Mapped);
}

// What needs something of the arrays comes first, and something that needs nothing
// last.
void test_rows_are_in_order() {
  std::set<Op> ended;
  const WayChoice* last = nullptr;
  for (const WayChoice& choice : choices()) {
    CHECK(std::strlen(choice.reason) != 0);
    CHECK(!ended.contains(choice.op));
    if (last != nullptr && last->op == choice.op) CHECK(last->way < choice.way);
    if (choice.way == Way::Slots) ended.insert(choice.op);
    last = &choice;
  }
  CHECK(ended.size() == 9);
}

void test_shares_of_an_all_to_all() {
  Tuning tuning = Tuning::for_ranks(3, 3);
  tuning.read_all_to_all_bytes = 1000;
  const Case c = {Op::AllToAll, Case::kUnknown, 3, true, false};
  tuning.read_most_all_to_all_bytes = 100'000;
  CHECK(select(c, tuning).least_share == 334);
  CHECK(select(c, tuning).most_share == 33'334);
  CHECK(best_of({c.op, 99'999, 3, true, false}, tuning) == Way::Read);
  CHECK(best_of({c.op, 100'000, 3, true, false}, tuning) == Way::Slots);
  CHECK(select({c.op, c.bytes, 3, false, false}, tuning).least_share == SIZE_MAX);
}

// The choice is the one that a group makes: with it nothing goes through the slots.
void test_ranks_take_the_way_chosen() {
  Tuning tuning = Tuning::for_ranks(2);
  tuning.read_rooted_bytes = 4096;
  run_reading_arenas(2, tuning, [](Arena& arena) {
    std::vector<float> data(5000, static_cast<float>(arena.rank()));
    const Operation operation = broadcast(buffer_of(data), 1);
    CHECK(ways_of(operation, arena).may(Way::Cooperative));
    call(arena, operation, soon());
    CHECK(data == std::vector<float>(5000, 1));
  });
}

}  // namespace
}  // namespace allhands::testing

int main() {
  using namespace allhands::testing;
  test_the_table();
  test_rows_are_in_order();
  test_shares_of_an_all_to_all();
  test_ranks_take_the_way_chosen();
}
