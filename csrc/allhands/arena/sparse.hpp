// A sparse array as one rank passes it to all_reduce, and what it gets back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "allhands/base/buffer.hpp"

namespace allhands {

// Some rows of a dense array of `num_rows` rows, each of `width` numbers; the others
// are zero.
struct SparseArray {
  std::span<const std::int64_t> indices;  // of the rows, ascending; the caller's memory
  Buffer values;                          // the rows, contiguous; the caller's memory
  std::size_t num_rows = 0;
  std::size_t width = 0;

  // The result: each row that some rank has.
  std::vector<std::int64_t> all_indices = {};
  std::unique_ptr<std::byte[]> sums = {};

  std::size_t sums_bytes() const {
    return all_indices.size() * width * size_of(values.dtype);
  }
};

using Indices = std::vector<std::int64_t>;

// Whether `indices` are ascending, each there once, and all below `num_rows`.
bool are_indices(std::span<const std::int64_t> indices, std::size_t num_rows);

// The rows that occur in at least one of `all`.
Indices united(std::vector<Indices> all);

// Makes array.sums, a row for each of array.all_indices: the array's own row, or zeros
// if it has none.
void lay_out(SparseArray& array);

}  // namespace allhands
