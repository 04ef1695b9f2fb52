// The memory from the lowest to the highest element of an array.
#pragma once

#include <cstdint>
#include <span>

#include "allhands/base/buffer.hpp"

namespace allhands {

struct Extent {
  std::intptr_t begin;
  std::intptr_t end;
};

Extent extent_of(const Buffer& buffer);

// Whether no two arrays have extents that overlap.
bool are_apart(std::span<const Buffer> arrays);

}  // namespace allhands
