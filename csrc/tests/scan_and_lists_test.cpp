// Prefix reductions, and collectives on lists of arrays.
#include <numeric>
#include <vector>

#include "check.hpp"
#include "ranks.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

// One line, one slot, several chunks.
const std::vector<std::size_t> kCounts = {0, 1, 7, 4097, 262145};

// The sum over the first `num_ranks` ranks.
std::vector<float> sums(int num_ranks, std::size_t count) {
  std::vector<float> result(count);
  for (int rank = 0; rank < num_ranks; ++rank)
    for (std::size_t i = 0; i < count; ++i) result[i] += value(rank, i);
  return result;
}

void test_scan(int size) {
  run_arenas(size, [&](Arena& arena) {
    for (const std::size_t count : kCounts) {
      std::vector<float> input = values(arena.rank(), count), output(count, -1);
      call(arena, scan(kScan, buffer_of(output), buffer_of(input), ReduceOp::Sum),
           soon());
      CHECK(output == sums(arena.rank() + 1, count));
      output.assign(count, -1);
      call(arena, scan(kExscan, buffer_of(output), buffer_of(input), ReduceOp::Sum),
           soon());
      const bool is_first = arena.rank() == 0;
      CHECK(output ==
            (is_first ? std::vector<float>(count, -1) : sums(arena.rank(), count)));
      call(arena, scan(kScan, buffer_of(input), buffer_of(input), ReduceOp::Sum),
           soon());
      CHECK(input == sums(arena.rank() + 1, count));
    }
  });
}

void test_scan_refuses_arrays_that_overlap_partly() {
  run_arenas(1, [&](Arena& arena) {
    std::vector<float> data(8);
    const Buffer all = buffer_of(data);
    const Error error = error_of([&] {
      call(arena, scan(kScan, all.slice(0, 5), all.slice(3, 5), ReduceOp::Sum), soon());
    });
    CHECK(error.kind() == ErrorKind::Value);
  });
}

void test_lists(int size, const std::vector<std::size_t>& counts) {
  const std::size_t total = std::reduce(counts.begin(), counts.end());
  std::vector<std::size_t> counts_of_all;
  for (int rank = 0; rank < size; ++rank)
    counts_of_all.insert(counts_of_all.end(), counts.begin(), counts.end());
  run_arenas(size, [&](Arena& arena) {
    std::vector<float> mine = values(arena.rank(), total);
    std::vector<float> all(total * static_cast<std::size_t>(size), -1);
    call(arena, all_gather_coalesced(cut(all, counts_of_all), cut(mine, counts)),
         soon());
    for (int rank = 0; rank < size; ++rank) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(total) * rank;
      CHECK(std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(total)) ==
            values(rank, total));
    }
    std::vector<float> part(total, -1);
    call(arena, reduce_scatter_coalesced(cut(part, counts), cut(all, counts_of_all)),
         soon());
    for (std::size_t i = 0; i < total; ++i)
      CHECK(part[i] == static_cast<float>(size) * value(arena.rank(), i));
    call(arena, all_reduce_coalesced(cut(mine, counts)), soon());
    CHECK(mine == sums(size, total));
  });
}

// One slot, and many chunks. On one rank only; the others' arrays are apart.
void test_a_list_may_share_memory(std::size_t length) {
  run_arenas(3, [&](Arena& arena) {
    const bool shares = arena.rank() == 1;
    const std::size_t step = shares ? length / 3 : length;
    std::vector<float> data(2 * step + length, 1);
    const Buffer all = buffer_of(data);
    call(arena,
         all_reduce_coalesced({all.slice(0, length), all.slice(step, length),
                               all.slice(2 * step, length)}),
         soon());
    CHECK(data == std::vector<float>(data.size(), 3));
  });
}

// Arrays that end within a block, of any layout.
void test_a_list_of_many_layouts(int size) {
  run_arenas(size, [&](Arena& arena) {
    std::vector<std::vector<float>> data;
    std::vector<Buffer> list;
    for (std::size_t i = 0; i < 150; ++i) {
      data.push_back(values(arena.rank(), 2 * 97 * i));
      list.push_back(buffer_of(data.back()));
      if (i % 3 != 0) continue;
      const auto half = static_cast<std::int64_t>(97 * i);
      list.back().count = 97 * i;
      list.back().dimensions = {{half, std::int64_t{2 * sizeof(float)}}};
    }
    call(arena, all_reduce_coalesced(list), soon());
    for (std::size_t i = 0; i < data.size(); ++i) {
      std::vector<float> expected = sums(size, data[i].size());
      for (std::size_t k = 1; i % 3 == 0 && k < expected.size(); k += 2)
        expected[k] = value(arena.rank(), k);
      CHECK(data[i] == expected);
    }
  });
}

// Of as many elements and arrays: only their sizes differ.
void test_lists_of_other_sizes_are_a_mismatch() {
  run_arenas(2, [](Arena& arena) {
    std::vector<float> data(5, 1);
    const bool is_first = arena.rank() == 0;
    const std::vector<std::vector<std::size_t>> first = {{2, 3}, {5}, {}},
                                                second = {{3, 2}, {2, 3}, {5}};
    for (std::size_t i = 0; i < first.size(); ++i) {
      const Error error = error_of([&] {
        call(arena, all_reduce_coalesced(cut(data, is_first ? first[i] : second[i])),
             soon());
      });
      CHECK(error.kind() == ErrorKind::Mismatch);
    }
    call(arena, all_reduce_coalesced(cut(data, {5})), soon());
    CHECK(data == std::vector<float>(5, 2));
  });
}

}  // namespace

int main() {
  for (const int size : {1, 2, 3, 5}) {
    test_scan(size);
    test_lists(size, {2, 0, 3});
    test_lists(size, {70000, 1, 200000});
    test_lists(size, {});
    test_a_list_of_many_layouts(size);
  }
  test_scan_refuses_arrays_that_overlap_partly();
  for (const std::size_t length : {3, 600'000}) test_a_list_may_share_memory(length);
  test_lists_of_other_sizes_are_a_mismatch();
}
