// Collectives through the arena, ranks as threads.
#include <algorithm>
#include <atomic>
#include <numeric>
#include <span>
#include <string>
#include <thread>

#include "allhands/base/error.hpp"
#include "ranks.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

// Elements of the largest chunk, or of a small one where many ranks share two cores.
std::size_t slot_of(int size) { return size <= 3 ? 262144 : 16384; }

// Around every path: one line, one slot, several chunks, odd counts, shares of nothing.
std::vector<std::size_t> counts(int size) {
  const std::size_t slot = slot_of(size);
  return {0, 1, 7, 10, 11, 4097, slot, slot + 1, 3 * slot - 5};
}

template <class Body>
void run_arenas_of(int size, Body body) {
  Tuning tuning = Tuning::for_ranks(size);
  if (size > 3) tuning.chunk_bytes = slot_of(size) * sizeof(float);
  if (size > 3) tuning.stream_bytes = 4 * tuning.chunk_bytes;
  run_arenas(size, tuning, body);
}

// Of whole pages; a slot holds one, and a part of it for every rank has some lines.
void test_chunks_are_as_large_as_the_tuning_says() {
  const auto chunk = [](int size, std::uint64_t bytes) {
    Tuning tuning = Tuning::for_ranks(size);
    tuning.chunk_bytes = bytes;
    return Layout(size).chunk_bytes(tuning);
  };
  CHECK(chunk(2, 128 << 10) == 128 << 10);
  CHECK(chunk(2, (128 << 10) + 4095) == 128 << 10);
  CHECK(chunk(2, 1) == 4096 && chunk(64, 1) == 64 * 256);
  CHECK(chunk(2, 1 << 30) == 1 << 20);
}

void test_all_reduce(int size) {
  run_arenas_of(size, [&](Arena& arena) {
    for (const std::size_t count : counts(size)) {
      std::vector<float> data = values(arena.rank(), count);
      const Buffer buffer = buffer_of(data);
      all_reduce(arena, buffer, buffer, ReduceOp::Sum, 1, soon());
      for (std::size_t i = 0; i < count; ++i) {
        float expected = 0;
        for (int rank = 0; rank < size; ++rank) expected += value(rank, i);
        CHECK(data[i] == expected);
      }
    }
  });
}

void test_all_reduce_of_a_strided_array(int size) {
  run_arenas_of(size, [&](Arena& arena) {
    for (const std::size_t count : counts(size)) {
      std::vector<float> data(2 * count + 1, -1);
      for (std::size_t i = 0; i < count; ++i) data[2 * i] = value(arena.rank(), i);
      Buffer buffer = buffer_of(data);
      buffer.count = count;
      buffer.dimensions = {{static_cast<std::int64_t>(count), 2 * sizeof(float)}};
      all_reduce(arena, buffer, buffer, ReduceOp::Max, 1, soon());
      for (std::size_t i = 0; i < count; ++i) {
        CHECK(data[2 * i] == value(size - 1, i));
        CHECK(data[2 * i + 1] == -1);
      }
    }
  });
}

void test_premul_sum_takes_each_ranks_factor() {
  run_arenas(3, [&](Arena& arena) {
    for (const std::size_t count : {std::size_t{3}, std::size_t{300000}}) {
      std::vector<float> data(count, 1);
      const Buffer buffer = buffer_of(data);
      all_reduce(arena, buffer, buffer, ReduceOp::PremulSum, 10.0 * arena.rank(),
                 soon());
      CHECK(std::count(data.begin(), data.end(), 30.0f) == std::ptrdiff_t(count));
    }
  });
}

void test_broadcast(int size) {
  run_arenas_of(size, [&](Arena& arena) {
    for (const std::size_t count : counts(size))
      for (const int root : {0, size - 1}) {
        std::vector<float> data = values(arena.rank(), count);
        broadcast(arena, buffer_of(data), root, soon());
        CHECK(are_values(root, data));
      }
  });
}

void test_all_gather(int size) {
  run_arenas_of(size, [&](Arena& arena) {
    for (const std::size_t count : counts(size)) {
      std::vector<float> input = values(arena.rank(), count);
      std::vector<float> output(count * static_cast<std::size_t>(size) + 1, -1);
      std::vector<Buffer> parts;
      for (int rank = 0; rank < size; ++rank)
        parts.push_back(
            buffer_of(output).slice(count * static_cast<std::size_t>(rank), count));
      all_gather(arena, parts, buffer_of(input), soon());
      for (int rank = 0; rank < size; ++rank)
        CHECK(
            are_values(rank, {&output[count * static_cast<std::size_t>(rank)], count}));
      CHECK(output.back() == -1);
    }
  });
}

void test_uneven_all_gather(int size) {
  run_arenas_of(size, [&](Arena& arena) {
    for (const std::size_t base : {std::size_t{0}, std::size_t{5}, slot_of(size) + 9}) {
      std::vector<std::size_t> sizes;
      for (int rank = 0; rank < size; ++rank)
        sizes.push_back(base * static_cast<std::size_t>(rank) + 1);
      const std::size_t mine = sizes[static_cast<std::size_t>(arena.rank())];
      std::vector<float> input = values(arena.rank(), mine);
      std::vector<float> output(std::accumulate(sizes.begin(), sizes.end(), 0ul));
      all_gather(arena, cut(output, sizes), buffer_of(input), soon());
      std::span<const float> rest = output;
      for (int rank = 0; rank < size; ++rank) {
        const std::size_t theirs = sizes[static_cast<std::size_t>(rank)];
        CHECK(are_values(rank, rest.first(theirs)));
        rest = rest.subspan(theirs);
      }
    }
  });
}

void test_reduce(int size) {
  run_arenas_of(size, [&](Arena& arena) {
    for (const std::size_t count : counts(size)) {
      const int root = size - 1;
      std::vector<float> data = values(arena.rank(), count);
      reduce(arena, buffer_of(data), root, ReduceOp::Max, 1, soon());
      CHECK(are_values(arena.rank() == root ? size - 1 : arena.rank(), data));
    }
  });
}

void test_gather_and_scatter(int size) {
  run_arenas_of(size, [&](Arena& arena) {
    for (const std::size_t count : counts(size)) {
      const int root = size / 2;
      const auto ranks = static_cast<std::size_t>(size);
      const bool is_root = arena.rank() == root;
      std::vector<float> whole(is_root ? count * ranks : 0), part(count);
      std::vector<float> input = values(arena.rank(), count);
      std::vector<Buffer> parts;
      if (is_root) parts = cut(whole, std::vector<std::size_t>(ranks, count));
      gather(arena, parts, buffer_of(input), root, soon());
      scatter(arena, buffer_of(part), parts, root, soon());
      CHECK(part == input);  // what each rank gave it gets back
    }
  });
}

void test_reduce_scatter(int size) {
  run_arenas_of(size, [&](Arena& arena) {
    for (const std::size_t base : {std::size_t{0}, std::size_t{7}, slot_of(size) / 3}) {
      std::vector<std::size_t> sizes;
      for (int rank = 0; rank < size; ++rank)
        sizes.push_back(base + static_cast<std::size_t>(rank % 2));
      std::vector<float> input =
          values(arena.rank(), std::accumulate(sizes.begin(), sizes.end(), 0ul));
      const auto self = static_cast<std::size_t>(arena.rank());
      std::vector<float> output(sizes[self]);
      reduce_scatter(arena, buffer_of(output), cut(input, sizes), ReduceOp::Min, 1,
                     soon());
      const auto at = std::accumulate(sizes.begin(), sizes.begin() + arena.rank(), 0ul);
      for (std::size_t i = 0; i < output.size(); ++i)
        CHECK(output[i] == value(0, at + i));
    }
  });
}

// Rank r sends base * (r + 2 t) elements to rank t, all of value 100 r + t.
void test_all_to_all(int size) {
  run_arenas_of(size, [&](Arena& arena) {
    for (const std::size_t base : {std::size_t{0}, std::size_t{1}, slot_of(size) / 7}) {
      const int self = arena.rank();
      const auto amount = [&](int from, int to) {
        return base * static_cast<std::size_t>(from + 2 * to);
      };
      std::vector<std::size_t> sends, receives;
      std::vector<float> input, expected;
      for (int rank = 0; rank < size; ++rank) {
        sends.push_back(amount(self, rank));
        receives.push_back(amount(rank, self));
        input.insert(input.end(), sends.back(), static_cast<float>(100 * self + rank));
        expected.insert(expected.end(), receives.back(),
                        static_cast<float>(100 * rank + self));
      }
      std::vector<float> output(expected.size());
      all_to_all(arena, cut(output, receives), cut(input, sends), soon());
      CHECK(output == expected);
    }
  });
}

void test_all_to_all_that_disagrees_is_raised_everywhere() {
  run_arenas(4, [&](Arena& arena) {
    std::vector<float> data(8, 1), output(8, -1);
    std::vector<std::size_t> sends(4, 2), receives(4, 2);
    if (arena.rank() == 1) sends = {2, 2, 1, 3};
    const Error error = error_of(
        [&] { all_to_all(arena, cut(output, receives), cut(data, sends), soon()); });
    CHECK(error.kind() == ErrorKind::Mismatch);
    const std::string text = error.what();
    CHECK(text.find("rank 1 sends 1 elements to rank 2, which expects 2") !=
          std::string::npos);
    CHECK(output == std::vector<float>(8, -1));
    barrier(arena, soon());
    // What a rank has for itself concerns nobody else, and is raised by all as well.
    if (arena.rank() == 1) receives = {2, 1, 2, 3}, sends = {2, 2, 2, 2};
    CHECK(error_of([&] {
            all_to_all(arena, cut(output, receives), cut(data, sends), soon());
          }).kind() == ErrorKind::Mismatch);
    barrier(arena, soon());
  });
}

// Every operation's slots are free when the next begins, whatever came before.
void test_operations_in_any_order(int size) {
  run_arenas_of(size, [&](Arena& arena) {
    std::uint32_t random = 1;  // the same sequence on every rank
    for (int round = 0; round < 200; ++round) {
      random = random * 1664525 + 1013904223;
      const std::size_t count = counts(size)[random % 8 == 7 ? 7 : random % 6];
      const int root = static_cast<int>((random >> 8) % static_cast<unsigned>(size));
      std::vector<float> data = values(arena.rank(), count);
      const Buffer buffer = buffer_of(data);
      if ((random >> 16) % 2 == 0) {
        broadcast(arena, buffer, root, soon());
        CHECK(are_values(root, data));
      } else {
        all_reduce(arena, buffer, buffer, ReduceOp::Min, 1, soon());
        CHECK(are_values(0, data));
      }
    }
  });
}

void test_mismatch_is_raised_everywhere_and_the_group_goes_on(int size) {
  run_arenas_of(size, [&](Arena& arena) {
    for (int round = 0; round < 6; ++round) {
      std::vector<float> data(round % 2 == 0 ? 4 : 2 * slot_of(size), 1);
      const Buffer buffer = buffer_of(data);
      std::string message;
      try {
        if (arena.rank() == 0)
          broadcast(arena, buffer, 0, soon());
        else
          all_reduce(arena, buffer, buffer, ReduceOp::Sum, 1, soon());
      } catch (const Error& error) {
        CHECK(error.kind() == ErrorKind::Mismatch);
        message = error.what();
      }
      CHECK(message.find("broadcast(float32, count ") != std::string::npos);
      CHECK(message.find("all_reduce(float32, count ") != std::string::npos);
      CHECK(data[0] == 1);
      all_reduce(arena, buffer, buffer, ReduceOp::Sum, 1, soon());
      CHECK(data[0] == static_cast<float>(size));
    }
  });
}

void test_timeout_names_who_is_missing_on_every_rank() {
  std::atomic<bool> has_come = false;
  run_arenas(3, [&](Arena& arena) {
    if (arena.rank() == 1) return;
    if (arena.rank() == 2) has_come = true;
    while (!has_come) std::this_thread::yield();
    const auto limit = std::chrono::seconds(arena.rank() == 0 ? 1 : 600);
    const Error first = error_of([&] { barrier(arena, within(limit)); });
    CHECK(first.kind() == ErrorKind::Timeout);
    CHECK(first.ranks() == std::vector<int>{1});
    CHECK(has(first, "missing [1]"));
    const Error again = error_of([&] { barrier(arena, soon()); });
    CHECK(again.kind() == ErrorKind::Timeout);
  });
}

void test_a_rank_that_left_is_named() {
  run_arenas(4, [&](Arena& arena) {
    barrier(arena, soon());
    if (arena.rank() == 2) {
      arena.leave();
      return;
    }
    const Error error = error_of([&] { barrier(arena, soon()); });
    CHECK(error.kind() == ErrorKind::RankFailed);
    CHECK(error.ranks() == std::vector<int>{2});
  });
}

// It comes and leaves while this rank looks whether it is gone.
void test_a_rank_that_came_before_it_left_is_not_blamed() {
  const std::shared_ptr<SharedMemory> memory =
      SharedMemory::create(Layout(2).total_bytes());
  Arena::prepare(*memory, 2, Tuning::for_ranks(2));
  bool has_come = false;
  const HasDeparted comes_and_leaves = [&](int) {
    const Layout layout(2);
    const Line& ours = layout.control(memory->data(), 0).lines[1];
    Line& theirs = layout.control(memory->data(), 1).lines[1];
    theirs.descriptor = ours.descriptor;
    theirs.clock = 3;  // as far as the first operation goes
    has_come = true;
    return true;
  };
  Arena mine(memory, membership(0, 2), {0, 1}, {}, comes_and_leaves);
  barrier(mine, soon());
  CHECK(has_come);
}

void test_interrupt_ends_the_wait_and_breaks_the_group() {
  run_arenas(2, [&](Arena& arena) {
    Limits limits = soon();
    if (arena.rank() == 0) limits.interrupt = [] { return true; };
    if (arena.rank() == 0) {
      const Error error = error_of([&] { barrier(arena, limits); });
      CHECK(error.kind() == ErrorKind::Interrupted);
    } else {
      while (!arena.has_failed()) std::this_thread::yield();
      const Error error = error_of([&] { barrier(arena, limits); });
      CHECK(error.kind() == ErrorKind::Backend);
      CHECK(has(error, "interrupted"));
    }
  });
}

// As where the signal comes while a rank makes memory, in the middle of an operation.
void test_peers_of_an_interrupted_rank_are_not_interrupted() {
  run_arenas(2, [&](Arena& arena) {
    if (arena.rank() == 0)
      return arena.fail(Error(ErrorKind::Interrupted, "interrupted"));
    const Error error = error_of([&] { barrier(arena, soon()); });
    CHECK(error.kind() == ErrorKind::Backend);
    CHECK(has(error, "rank 0 reports: interrupted"));
  });
}

}  // namespace

int main() {
  test_chunks_are_as_large_as_the_tuning_says();
  for (const int size : {1, 2, 3, 5, 8}) {
    test_all_reduce(size);
    test_all_reduce_of_a_strided_array(size);
    test_broadcast(size);
    test_all_gather(size);
    test_uneven_all_gather(size);
    test_reduce(size);
    test_gather_and_scatter(size);
    test_reduce_scatter(size);
    test_all_to_all(size);
    test_operations_in_any_order(size);
    if (size > 1) test_mismatch_is_raised_everywhere_and_the_group_goes_on(size);
  }
  test_all_to_all_that_disagrees_is_raised_everywhere();
  test_premul_sum_takes_each_ranks_factor();
  test_timeout_names_who_is_missing_on_every_rank();
  test_a_rank_that_left_is_named();
  test_a_rank_that_came_before_it_left_is_not_blamed();
  test_interrupt_ends_the_wait_and_breaks_the_group();
  test_peers_of_an_interrupted_rank_are_not_interrupted();
}
