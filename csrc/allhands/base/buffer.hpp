// An array as the core sees it: memory that somebody else owns, its dtype and its
// layout.
//
// Elements are numbered in C (row-major) order of the shape, whatever the strides are;
// "offset" means this number everywhere in the core.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "allhands/base/dtype.hpp"

namespace allhands {

// The elements along one axis, and the distance between them.
struct Dimension {
  std::int64_t size;
  std::int64_t stride;  // bytes, may be negative

  bool operator==(const Dimension&) const = default;
};

// Memory that somebody else owns, its dtype and its layout.
struct Buffer {
  void* data = nullptr;
  DType dtype = DType::UInt8;
  std::size_t count = 0;              // elements
  std::vector<Dimension> dimensions;  // empty: contiguous in C order
  std::size_t first = 0;              // elements to skip; 0 where contiguous

  // Whether both have the same elements in the same order.
  bool operator==(const Buffer&) const = default;

  bool is_contiguous() const { return dimensions.empty(); }
  std::size_t num_bytes() const { return count * size_of(dtype); }
  // Needs a contiguous array.
  std::byte* at_byte(std::size_t offset) const {
    return static_cast<std::byte*>(data) + offset;
  }

  // Elements [at, at + length) of this array.
  Buffer slice(std::size_t at, std::size_t length) const {
    Buffer part = *this;
    part.count = length;
    if (is_contiguous())
      part.data = at_byte(at * size_of(dtype));
    else
      part.first += at;
    return part;
  }
};

// Views an array of complex numbers as one of twice as many real numbers, each real
// part before its imaginary part; returns another array as it is.
Buffer view_as_real(Buffer buffer);

// Whether the ranges of two arrays, from the lowest to the highest element, overlap.
bool overlap(const Buffer& a, const Buffer& b);
// The same for lists; the range of a list includes all its arrays.
bool overlap(const std::vector<Buffer>& a, const std::vector<Buffer>& b);

std::size_t num_bytes(const std::vector<Buffer>& list);

// The largest number of elements of an array in the list; 0 for an empty list.
std::size_t largest_count(const std::vector<Buffer>& list);

}  // namespace allhands
