// An array as the core sees it: memory somebody else owns, its dtype and its layout.
//
// Elements are numbered in C (row-major) order of the shape, whatever the strides are;
// that number is what "offset" means everywhere in the core.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "allhands/base/dtype.hpp"

namespace allhands {

// Elements along one axis, and how far apart they are.
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

  // The same elements in the same order.
  bool operator==(const Buffer&) const = default;

  bool is_contiguous() const { return dimensions.empty(); }
  std::size_t num_bytes() const { return count * size_of(dtype); }
  // Of a contiguous one.
  std::byte* at_byte(std::size_t offset) const {
    return static_cast<std::byte*>(data) + offset;
  }

  // Elements [at, at + length) of this one.
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

// An array of complex numbers as one of twice as many real ones, each real part before
// its imaginary part; another array as it is.
Buffer view_as_real(Buffer buffer);

// Whether two arrays have memory in common, between their lowest and highest elements.
bool overlap(const Buffer& a, const Buffer& b);
// The same of whole lists, each from the lowest to the highest element of all.
bool overlap(const std::vector<Buffer>& a, const std::vector<Buffer>& b);

std::size_t num_bytes(const std::vector<Buffer>& list);

// The most elements that one of the list has; 0 for an empty list.
std::size_t largest_count(const std::vector<Buffer>& list);

}  // namespace allhands
