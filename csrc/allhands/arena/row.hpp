// Lists of arrays taken as one array, in a row. Elements are numbered through all of
// the list.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "allhands/base/buffer.hpp"
#include "allhands/kernels/pack.hpp"

namespace allhands {

using Buffers = std::span<const Buffer>;

std::size_t count_of(Buffers list);

// The dtype of the first array; UInt8 for an empty list.
DType dtype_of(Buffers list);

// Arrays of one dtype as one array. They must stay as long as the Row.
class Row {
 public:
  explicit Row(Buffers arrays);

  Buffers arrays() const { return arrays_; }
  DType dtype() const { return dtype_of(arrays_); }
  std::size_t count() const { return count_; }
  std::size_t num_bytes() const { return count_ * size_of(dtype()); }

  // Copies elements [at, at + count) to contiguous memory and back.
  void pack(std::size_t at, std::size_t count, void* to) const;
  void unpack(const void* from, std::size_t at, std::size_t count,
              Stores stores = Stores::Cached) const;
  // Where these elements are, if they are contiguous in one of the arrays; else null.
  std::byte* contiguous(std::size_t at, std::size_t count) const;

 private:
  std::size_t array_at(std::size_t at) const;
  std::size_t start(std::size_t i) const { return starts_.empty() ? 0 : starts_[i]; }
  template <class Each>
  void for_pieces(std::size_t at, std::size_t count, Each each) const;

  Buffers arrays_;
  std::size_t count_;
  // The number of the first element of each array; empty if there is one array only.
  std::vector<std::size_t> starts_;
};

// The arrays of rank `rank` of a list that has `length` for each.
Buffers part_of(const std::vector<Buffer>& list, int rank, std::size_t length);

// A row for each rank of such a list.
std::vector<Row> rows_of(const std::vector<Buffer>& list, int size);

// The dtype in which a list is reduced as one array: if complex and real arrays are
// mixed, that of the real ones.
DType common_dtype(const std::vector<Buffer>& list);
std::vector<Buffer> in_common_dtype(std::vector<Buffer> list);

}  // namespace allhands
