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

// Copies elements [at, at + count) to contiguous memory and back.
void pack_row(Buffers from, std::size_t at, std::size_t count, std::byte* to);
void unpack_row(const std::byte* from, Buffers to, std::size_t at, std::size_t count,
                Stores stores);

// The arrays of rank `rank` of a list that has `length` for each.
Buffers part_of(const std::vector<Buffer>& list, int rank, std::size_t length);

// The dtype in which a list is reduced as one array: if complex and real arrays are
// mixed, that of the real ones.
DType common_dtype(const std::vector<Buffer>& list);
std::vector<Buffer> in_common_dtype(std::vector<Buffer> list);

}  // namespace allhands
