// Collectives on large arrays of the ranks' own, which are read where they lie.
#include <vector>

#include "allhands/transport/shm/peer_memory.hpp"
#include "check.hpp"
#include "ranks.hpp"

namespace allhands::testing {
namespace {

constexpr std::size_t kCount = 10'007;

float value(int rank, std::size_t i) {
  return static_cast<float>(rank * 100 + static_cast<int>(i % 89));
}

std::vector<float> values_of(int rank) {
  std::vector<float> values(kCount);
  for (std::size_t i = 0; i < kCount; ++i) values[i] = value(rank, i);
  return values;
}

bool is_of(const std::vector<float>& values, int rank) {
  return values == values_of(rank);
}

// One array per rank, and views of them.
struct Arrays {
  explicit Arrays(int size, float start = 0)
      : memory(static_cast<std::size_t>(size), std::vector<float>(kCount, start)) {
    for (std::vector<float>& array : memory) buffers.push_back(buffer_of(array));
  }
  std::vector<std::vector<float>> memory;
  std::vector<Buffer> buffers;
};

Tuning reading(int size) {
  Tuning tuning = Tuning::for_ranks(size);
  tuning.read_bytes = tuning.read_broadcast_bytes = tuning.read_rooted_bytes = 4096;
  tuning.read_reduce_bytes = tuning.read_reduce_scatter_bytes = 4096;
  tuning.read_all_to_all_bytes = 4096;
  return tuning;
}

template <class Body>
void run_reading(int size, Body body) {
  run_reading_arenas(size, reading(size), body);
}

void test_reductions(int size) {
  run_reading(size, [&](Arena& arena) {
    std::vector<float> mine = values_of(arena.rank()), sum(kCount);
    for (int rank = 0; rank < size; ++rank)
      for (std::size_t i = 0; i < kCount; ++i) sum[i] += value(rank, i);
    const Buffer buffer = buffer_of(mine);
    all_reduce(arena, buffer, buffer, ReduceOp::Sum, 1, soon());
    CHECK(mine == sum);

    Arrays inputs(size, static_cast<float>(arena.rank()));
    std::vector<float> output(kCount);
    reduce_scatter(arena, buffer_of(output), inputs.buffers, ReduceOp::Sum, 1, soon());
    const auto expected = static_cast<float>(size * (size - 1) / 2);
    CHECK(output == std::vector<float>(kCount, expected));
  });
}

void test_moves(int size) {
  run_reading(size, [&](Arena& arena) {
    const int root = size - 1;
    std::vector<float> mine = values_of(arena.rank());
    std::vector<float> copy = mine;
    broadcast(arena, buffer_of(copy), root, soon());
    CHECK(is_of(copy, root));

    Arrays all(size);
    all_gather(arena, all.buffers, buffer_of(mine), soon());
    for (int rank = 0; rank < size; ++rank)
      CHECK(is_of(all.memory[static_cast<std::size_t>(rank)], rank));

    const bool is_root = arena.rank() == root;
    Arrays gathered(size);
    gather(arena, is_root ? gathered.buffers : std::vector<Buffer>(), buffer_of(mine),
           root, soon());
    for (int rank = 0; is_root && rank < size; ++rank)
      CHECK(is_of(gathered.memory[static_cast<std::size_t>(rank)], rank));

    std::vector<float> part(kCount);
    scatter(arena, buffer_of(part), is_root ? all.buffers : std::vector<Buffer>(), root,
            soon());
    CHECK(is_of(part, arena.rank()));

    Arrays sent(size, static_cast<float>(arena.rank())), came(size);
    all_to_all(arena, came.buffers, sent.buffers, soon());
    for (int rank = 0; rank < size; ++rank)
      CHECK(came.memory[static_cast<std::size_t>(rank)] ==
            std::vector<float>(kCount, static_cast<float>(rank)));
  });
}

// Arrays that overlap what peers read have to be staged.
void test_all_to_all_in_place() {
  run_arenas(2, reading(2), [&](Arena& arena) {
    barrier(arena, soon());
    Arrays arrays(2, static_cast<float>(arena.rank()));
    all_to_all(arena, arrays.buffers, arrays.buffers, soon());
    CHECK(arrays.memory[0] == std::vector<float>(kCount, 0));
    CHECK(arrays.memory[1] == std::vector<float>(kCount, 1));
  });
}

void test_a_process_that_is_gone() {
  char byte = 0;
  const int no_process = 1 << 30;  // above the largest pid
  CHECK(read_memory_of(no_process, 4096, &byte, 1) == PeerRead::Gone);
}

}  // namespace
}  // namespace allhands::testing

int main() {
  using namespace allhands::testing;
  for (const int size : {2, 3, 5}) {
    test_reductions(size);
    test_moves(size);
  }
  test_all_to_all_in_place();
  test_a_process_that_is_gone();
}
