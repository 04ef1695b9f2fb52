// Arenas that serve a part of a group each: collectives run between the local ranks,
// under the numbers of the group, and errors name ranks of the group.
#include <algorithm>
#include <atomic>
#include <string>
#include <thread>

#include "allhands/comm/failure_record.hpp"
#include "ranks.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

constexpr int kSize = 4;
const std::vector<std::vector<int>> kHosts = {{0, 2}, {1, 3}};

// Runs body(arena) as every rank of a group of four, of which two share each arena.
template <class Body>
void run_halves(Body body) {
  const std::size_t bytes = Layout(2).total_bytes();
  std::vector<std::shared_ptr<SharedMemory>> memories;
  for (int host = 0; host < 2; ++host) {
    memories.push_back(SharedMemory::create(bytes));
    Arena::prepare(*memories.back(), 2, Tuning::for_ranks(2));
  }
  run_ranks(kSize, [&](int rank) {
    const auto host = static_cast<std::size_t>(rank % 2);
    Arena arena(memories[host], membership(rank, kSize), kHosts[host], {});
    CHECK(arena.size() == 2 && arena.rank() == rank / 2);
    body(arena, rank);
  });
}

// The group's other operations, which go elsewhere, have numbers, too.
void test_operations_have_the_groups_numbers() {
  run_halves([](Arena& arena, int rank) {
    for (std::uint64_t number = 2; number < 400; number += 2) {
      std::vector<float> data(number % 3 == 0 ? 300000 : 5, static_cast<float>(rank));
      const Buffer buffer = buffer_of(data);
      run(arena, number, all_reduce(buffer, buffer, ReduceOp::Sum, 1), soon());
      CHECK(arena.sequence() == number);
      CHECK(data.front() == static_cast<float>(2 * (rank % 2) + 2));
      CHECK(data.back() == data.front());
      if (number > 50) number += 1;  // odd and even ones
    }
  });
}

void test_every_local_collective(Arena& arena, int rank) {
  const int other = (rank + 2) % kSize;
  std::vector<float> mine(70000, static_cast<float>(rank)), both(140000);
  const auto part = [&](int local) {
    return buffer_of(both).slice(static_cast<std::size_t>(local) * 70000, 70000);
  };
  all_gather(arena, {part(0), part(1)}, buffer_of(mine), soon());
  CHECK(both.front() == static_cast<float>(std::min(rank, other)));
  CHECK(both.back() == static_cast<float>(std::max(rank, other)));
  broadcast(arena, buffer_of(mine), 1, soon());
  CHECK(mine[5] == static_cast<float>(std::max(rank, other)));
}

void test_a_mismatch_names_ranks_of_the_group() {
  run_halves([](Arena& arena, int rank) {
    std::vector<float> data(3, 1);
    const Buffer buffer = buffer_of(data);
    const Operation operation =
        rank == 3 ? broadcast(buffer, 0) : all_reduce(buffer, buffer, ReduceOp::Sum, 1);
    if (rank % 2 == 0) return run(arena, 40, operation, soon());
    const Error error = error_of([&] { run(arena, 40, operation, soon()); });
    CHECK(error.kind() == ErrorKind::Mismatch);
    CHECK(error.ranks() == std::vector<int>{rank == 1 ? 3 : 1});
    CHECK(has(error, "operation #40"));
    CHECK(has(error, rank == 1 ? "rank 1 (this process): all_reduce("
                               : "rank 1: all_reduce("));
    CHECK(has(error,
              rank == 3 ? "rank 3 (this process): broadcast(" : "rank 3: broadcast("));
  });
}

void test_disagreeing_shares_name_ranks_of_the_group() {
  run_halves([](Arena& arena, int rank) {
    std::vector<float> data(8, 1), output(8, -1);
    const Buffer from = buffer_of(data), to = buffer_of(output);
    const std::size_t sent = rank == 2 ? 3 : 2;
    const auto exchange = [&] {
      all_to_all(arena, {to.slice(0, 2), to.slice(2, 2)},
                 {from.slice(0, sent), from.slice(sent, 2)}, soon());
    };
    if (rank % 2 == 1) return exchange();
    const Error error = error_of(exchange);
    CHECK(error.ranks() == (std::vector<int>{2, 0}));
    CHECK(has(error, "rank 2 sends 3 elements to rank 0, which expects 2"));
  });
}

void test_a_timeout_names_ranks_of_the_group() {
  run_halves([](Arena& arena, int rank) {
    barrier(arena, soon());
    if (rank == 3) return;
    const auto limit = std::chrono::milliseconds(rank == 1 ? 50 : 0);
    if (rank % 2 == 0) return barrier(arena, soon());
    const Error error = error_of([&] { run(arena, 9, barrier(), within(limit)); });
    CHECK(error.kind() == ErrorKind::Timeout);
    CHECK(error.ranks() == std::vector<int>{3});
    CHECK(has(error, "barrier() #9 on group 'test': rank 1 (this process): timed out"));
    CHECK(has(error, "missing [3]; rank 3 was last in barrier #1"));
  });
}

void test_a_rank_that_left_is_a_rank_of_the_group() {
  run_halves([](Arena& arena, int rank) {
    if (rank == 2) return arena.leave();
    if (rank != 0) return barrier(arena, soon());
    const Error error = error_of([&] { barrier(arena, soon()); });
    CHECK(error.kind() == ErrorKind::RankFailed);
    CHECK(error.ranks() == std::vector<int>{2});
    CHECK(has(error, "rank 2 (pid "));
  });
}

void test_a_failure_is_told_by_a_rank_of_the_group() {
  run_halves([](Arena& arena, int rank) {
    if (rank == 3)
      return arena.fail(Error(ErrorKind::RankFailed, "rank 2 is gone", {2}));
    if (rank != 1) return barrier(arena, soon());  // the other half is not concerned
    const Error error = error_of([&] { barrier(arena, soon()); });
    CHECK(error.kind() == ErrorKind::RankFailed);
    CHECK(error.ranks() == std::vector<int>{2});
    CHECK(has(error, "rank 3 reports: rank 2 is gone"));
  });
}

// Of all the arenas that a Communicator may have.
void test_the_first_failure_is_kept() {
  FailureRecord record;
  CHECK(!record.error());
  run_halves([&](Arena& arena, int rank) {
    if (rank > 1) return arena.leave();
    static std::atomic<bool> is_noted = false;
    if (rank == 0)
      while (!is_noted) std::this_thread::yield();
    record.note(error_of([&] { barrier(arena, soon()); }));
    is_noted = true;
  });
  CHECK(record.error()->kind() == ErrorKind::RankFailed);
  CHECK(record.error()->ranks() == std::vector<int>{3});
}

}  // namespace

int main() {
  test_operations_have_the_groups_numbers();
  run_halves(test_every_local_collective);
  test_a_mismatch_names_ranks_of_the_group();
  test_disagreeing_shares_name_ranks_of_the_group();
  test_a_timeout_names_ranks_of_the_group();
  test_a_rank_that_left_is_a_rank_of_the_group();
  test_a_failure_is_told_by_a_rank_of_the_group();
  test_the_first_failure_is_kept();
}
