// Copies between an array of any layout and contiguous memory.
//
// Elements are numbered in C order of the Buffer's shape. Any range of them can be
// copied, so a large array can be staged in chunks. Thread-safe as memcpy is: for
// disjoint memory.
#pragma once

#include <cstddef>

#include "allhands/base/buffer.hpp"

namespace allhands {

// How a copy writes. Streaming stores go past the caches, for outputs so large that the
// caches would keep nothing of them anyway; they save reading what is overwritten.
enum class Stores { Cached, Streaming };

// Copies elements [offset, offset + count) of `from` to `to`. Strides may be negative
// or zero.
void pack(const Buffer& from, std::size_t offset, std::size_t count, void* to);

// Copies back. The elements of `to` must not overlap each other.
void unpack(const void* from, const Buffer& to, std::size_t offset, std::size_t count,
            Stores stores = Stores::Cached);

// Copies from array to array, which may be the same one.
void copy(const Buffer& from, const Buffer& to, std::size_t offset, std::size_t count,
          Stores stores = Stores::Cached);

}  // namespace allhands
