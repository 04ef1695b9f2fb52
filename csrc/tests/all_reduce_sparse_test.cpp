// all_reduce of sparse arrays.
#include <cstring>
#include <vector>

#include "allhands/arena/sparse.hpp"
#include "check.hpp"
#include "ranks.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

using Indices = std::vector<std::int64_t>;

Operation all_reduce_sparse(SparseArray& array, ReduceOp op = ReduceOp::Sum) {
  return {.collective = &kAllReduceSparse, .reduce_op = op, .sparse = &array};
}

SparseArray sparse(const Indices& indices, std::vector<float>& values,
                   std::size_t num_rows, std::size_t width = 1) {
  return {
      .indices = indices,
      .values = buffer_of(values),
      .num_rows = num_rows,
      .width = width,
  };
}

std::vector<float> sums_of(const SparseArray& array) {
  std::vector<float> sums(array.sums_bytes() / sizeof(float));
  if (!sums.empty()) std::memcpy(sums.data(), array.sums.get(), array.sums_bytes());
  return sums;
}

// Rank r has every (r + 1)-th row: as many indices as fill one line, one slot, several.
void test_rows_of_all_ranks(int size, std::size_t num_rows, std::size_t width) {
  Tuning tuning = Tuning::for_ranks(size);
  tuning.chunk_bytes = 32 << 10;  // 4088 indices
  run_arenas(size, tuning, [&](Arena& arena) {
    const auto step = static_cast<std::size_t>(arena.rank()) + 1;
    Indices indices;
    std::vector<float> values;
    for (std::size_t row = 0; row < num_rows; row += step) {
      indices.push_back(static_cast<std::int64_t>(row));
      for (std::size_t i = 0; i < width; ++i)
        values.push_back(static_cast<float>(row % 100 + step));
    }
    for (int repeat = 0; repeat < 2; ++repeat) {
      SparseArray array = sparse(indices, values, num_rows, width);
      call(arena, all_reduce_sparse(array), soon());
      CHECK(array.all_indices.size() == num_rows);
      const std::vector<float> sums = sums_of(array);
      for (std::size_t row = 0; row < num_rows; ++row) {
        float expected = 0;
        for (std::size_t rank = 0; rank < static_cast<std::size_t>(size); ++rank)
          if (row % (rank + 1) == 0)
            expected += static_cast<float>(row % 100 + rank + 1);
        CHECK(array.all_indices[row] == static_cast<std::int64_t>(row));
        for (std::size_t i = 0; i < width; ++i)
          CHECK(sums[row * width + i] == expected);
      }
      barrier(arena, soon());  // whatever comes next works
    }
  });
}

void test_some_or_all_ranks_have_no_rows() {
  run_arenas(3, [](Arena& arena) {
    for (const int last : {0, 2}) {  // the first rank that has none
      std::vector<float> values;
      Indices indices;
      if (arena.rank() < last) indices.push_back(7), values.push_back(2);
      SparseArray array = sparse(indices, values, 8);
      call(arena, all_reduce_sparse(array), soon());
      CHECK(array.all_indices == (last == 0 ? Indices{} : Indices{7}));
      CHECK(sums_of(array) ==
            (last == 0 ? std::vector<float>{} : std::vector<float>{4}));
    }
  });
}

void test_rows_that_a_rank_lacks_are_zero() {
  run_arenas(2, [](Arena& arena) {
    std::vector<float> values = {5};
    const Indices indices = {arena.rank()};
    SparseArray array = sparse(indices, values, 4);
    call(arena, all_reduce_sparse(array, ReduceOp::Min), soon());
    CHECK(array.all_indices == (Indices{0, 1}));
    CHECK(sums_of(array) == (std::vector<float>{0, 0}));
  });
}

void test_other_arrays_are_a_mismatch() {
  run_arenas(2, [](Arena& arena) {
    const bool is_first = arena.rank() == 0;
    std::vector<float> values(4, 1);
    const Indices two = {0, 1}, four = {0, 1, 2, 3};
    std::vector<SparseArray> other;
    other.push_back(sparse(four, values, 9));    // more rows
    other.push_back(sparse(two, values, 4, 2));  // as many numbers, in wider rows
    for (SparseArray& array : other) {
      SparseArray mine = sparse(four, values, 8);
      const Error error = error_of(
          [&] { call(arena, all_reduce_sparse(is_first ? mine : array), soon()); });
      CHECK(error.kind() == ErrorKind::Mismatch);
    }
    const Buffer dense = buffer_of(values);
    SparseArray mine = sparse(four, values, 4);
    const Error error = error_of([&] {
      call(arena,
           is_first ? all_reduce_sparse(mine)
                    : all_reduce(dense, dense, ReduceOp::Sum, {}),
           soon());
    });
    CHECK(error.kind() == ErrorKind::Mismatch);
    barrier(arena, soon());
  });
}

void test_bad_indices_are_refused() {
  run_arenas(1, [](Arena& arena) {
    std::vector<float> values(2, 1);
    for (const Indices& bad :
         {Indices{1, 0}, Indices{1, 1}, Indices{-1, 0}, Indices{0, 8}}) {
      SparseArray array = sparse(bad, values, 8);
      const Error error =
          error_of([&] { call(arena, all_reduce_sparse(array), soon()); });
      CHECK(error.kind() == ErrorKind::Value);
    }
    const Indices three = {0, 1, 2};
    SparseArray array = sparse(three, values, 8);
    CHECK(error_of([&] { call(arena, all_reduce_sparse(array), soon()); }).kind() ==
          ErrorKind::Value);
  });
}

// As when something has written over what a rank said: nobody reads or writes beyond.
void test_bad_indices_of_a_peer_break_the_group() {
  for (const Indices& bad : {Indices{1, 0}, Indices{0, 8}, Indices(9, 0)})
    run_arenas(2, [&](Arena& arena) {
      std::vector<float> values(9, 1);
      const Indices good = {0, 1};
      SparseArray array = sparse(arena.rank() == 0 ? bad : good, values, 8);
      const Error error =
          error_of([&] { run(arena, 1, all_reduce_sparse(array), soon()); });
      CHECK(error.kind() == ErrorKind::Backend);
      CHECK(has(error, "rank 0"));
    });
}

}  // namespace

int main() {
  for (const int size : {1, 2, 3, 5})
    for (const std::size_t width : {1, 3})
      for (const std::size_t num_rows : {1, 5, 4088, 4089, 20'001})
        test_rows_of_all_ranks(size, num_rows, width);
  test_some_or_all_ranks_have_no_rows();
  test_rows_that_a_rank_lacks_are_zero();
  test_other_arrays_are_a_mismatch();
  test_bad_indices_are_refused();
  test_bad_indices_of_a_peer_break_the_group();
}
