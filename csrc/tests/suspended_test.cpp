// Operations whose thread is called off before the peers come, and that another run
// goes on with when the peers have gone as far as they can without it.
#include <atomic>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "allhands/base/error.hpp"
#include "collectives.hpp"
#include "ranks.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

using Floats = std::vector<float>;

// An operation of `rank`, and what it is on.
struct Case {
  Floats input;
  Floats output;
  Operation operation;
};

bool is_called_off() { return true; }

std::atomic<int> num_asleep;  // peers that sleep until rank 0 goes on
bool note_sleep() {
  static thread_local bool is_noted = false;
  if (!std::exchange(is_noted, true)) ++num_asleep;
  return false;
}

bool is_suspended(Arena& arena, const Operation& operation) {
  try {
    run(arena, 2, operation, {Deadline::never(), is_called_off}, true);
  } catch (const Suspended& suspended) {
    return suspended.interruption != nullptr;
  }
  return false;
}

// `make(case, rank)` fills in the operation, `expected(rank, i)` is its result.
template <class Make, class Expected>
void check_resumed(int size, std::size_t count, Make make, Expected expected) {
  std::atomic<bool> is_left = false;
  std::atomic<int> num_done = 0;
  num_asleep = 0;
  run_arenas(size, Tuning::for_ranks(size), [&](Arena& arena) {
    const int rank = arena.rank();
    const std::size_t total = count * static_cast<std::size_t>(size);
    Case it = {Floats(total), Floats(total), {}};
    std::iota(it.input.begin(), it.input.end(), static_cast<float>(1000 * rank));
    make(it, rank);
    barrier(arena, soon());  // the first, at which ranks find out about each other
    if (rank == 0) {
      CHECK(is_suspended(arena, it.operation));
      is_left = true;
      while (num_asleep + num_done < size - 1) std::this_thread::yield();
      run(arena, 2, it.operation, soon());
    } else {
      while (!is_left) std::this_thread::yield();
      run(arena, 2, it.operation, {Deadline::never(), note_sleep});
      ++num_done;
    }
    for (std::size_t i = 0; i < it.output.size(); ++i)
      CHECK(it.output[i] == expected(rank, i));
    barrier(arena, soon());
  });
}

std::vector<Buffer> parts_of(Floats& array, int size) {
  std::vector<Buffer> parts;
  const std::size_t count = array.size() / static_cast<std::size_t>(size);
  for (std::size_t i = 0; i < array.size(); i += count)
    parts.push_back({array.data() + i, DType::Float32, count, {}, 0});
  return parts;
}

float input(int rank, std::size_t i) {
  return static_cast<float>(1000 * rank) + static_cast<float>(i);
}
float sum(int size, std::size_t i) {
  float total = 0;
  for (int rank = 0; rank < size; ++rank) total += input(rank, i);
  return total;
}

void test_all_reduce(int size, std::size_t count) {
  check_resumed(
      size, count,
      [](Case& it, int) {
        it.operation =
            all_reduce(buffer_of(it.output), buffer_of(it.input), ReduceOp::Sum, 1);
      },
      [&](int, std::size_t i) { return sum(size, i); });
}

void test_all_reduce_in_place(int size, std::size_t count) {
  check_resumed(
      size, count,
      [](Case& it, int) {
        it.output = it.input;
        it.operation =
            all_reduce(buffer_of(it.output), buffer_of(it.output), ReduceOp::Sum, 1);
      },
      [&](int, std::size_t i) { return sum(size, i); });
}

void test_all_reduce_coalesced(int size, std::size_t count) {
  check_resumed(
      size, count,
      [&](Case& it, int) {
        it.output = it.input;
        it.operation = all_reduce_coalesced(parts_of(it.output, size));
      },
      [&](int, std::size_t i) { return sum(size, i); });
}

void test_all_to_all(int size, std::size_t count) {
  check_resumed(
      size, count,
      [&](Case& it, int) {
        it.operation = all_to_all(parts_of(it.output, size), parts_of(it.input, size));
      },
      [&](int rank, std::size_t i) {
        const std::size_t mine = static_cast<std::size_t>(rank) * count;
        return input(static_cast<int>(i / count), mine + i % count);
      });
}

// Every rank's output over its input: it goes on copies of this.
void test_all_gather_over_the_input(int size, std::size_t count) {
  check_resumed(
      size, count,
      [&](Case& it, int) {
        it.output = it.input;
        const Buffer last = parts_of(it.output, size).back();
        it.operation = all_gather(parts_of(it.output, size), last);
      },
      [&](int, std::size_t i) {
        const std::size_t last = static_cast<std::size_t>(size - 1) * count;
        return input(static_cast<int>(i / count), last + i % count);
      });
}

void test_broadcast(int size, std::size_t count) {
  for (int root = 0; root < 2 && root < size; ++root)
    check_resumed(
        size, count,
        [&](Case& it, int) {
          it.output = it.input;
          it.operation = broadcast(buffer_of(it.output), root);
        },
        [&](int, std::size_t i) { return input(root, i); });
}

void test_reduce_scatter(int size, std::size_t count) {
  check_resumed(
      size, count,
      [&](Case& it, int) {
        it.output.resize(count);
        it.operation = reduce_scatter(buffer_of(it.output), parts_of(it.input, size),
                                      ReduceOp::Sum, 1);
      },
      [&](int rank, std::size_t i) {
        return sum(size, static_cast<std::size_t>(rank) * count + i);
      });
}

void test_factor(int size) {
  check_resumed(
      size, 3,
      [](Case& it, int rank) {
        it.operation = all_reduce(buffer_of(it.output), buffer_of(it.input),
                                  ReduceOp::PremulSum, 2.0 + rank);
      },
      [&](int, std::size_t i) {
        float total = 0;
        for (int rank = 0; rank < size; ++rank)
          total += static_cast<float>(2 + rank) * input(rank, i);
        return total;
      });
}

// What peers may read where it lies cannot change threads, as its thread may have it on
// its stack.
void test_what_shows_its_memory_is_not_begun() {
  Tuning tuning = Tuning::for_ranks(2);
  tuning.read_bytes = 4096;
  run_reading_arenas(2, tuning, [&](Arena& arena) {
    Floats input(10000), output(20000);
    const Operation read = all_gather(parts_of(output, 2), buffer_of(input));
    try {
      run(arena, arena.sequence() + 1, read, soon(), true);
      CHECK(!"it ran");
    } catch (const Suspended& suspended) {
      CHECK(!suspended.interruption);
    }
    run(arena, arena.sequence() + 1, read, soon());
  });
}

}  // namespace

int main() {
  for (const int size : {2, 3})
    for (const std::size_t count : {std::size_t{3}, std::size_t{7000}}) {
      test_all_reduce(size, count);
      test_all_reduce_in_place(size, count);
      test_all_reduce_coalesced(size, count);
      test_all_to_all(size, count);
      test_all_gather_over_the_input(size, count);
      test_broadcast(size, count);
      test_reduce_scatter(size, count);
      test_factor(size);
    }
  test_what_shows_its_memory_is_not_begun();
}
