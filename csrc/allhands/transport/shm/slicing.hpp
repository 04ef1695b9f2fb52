// How a number of bytes is cut into slices that two ranks copy together; both ranks cut
// it the same way.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allhands/host/tuning.hpp"

namespace allhands {

struct Slicing {
  Slicing(std::size_t bytes, const Tuning& tuning);

  std::uint32_t count() const;
  std::size_t begin(std::uint32_t i) const { return i * slice; }
  std::size_t length(std::uint32_t i) const;

  std::size_t bytes;
  std::size_t slice;
};

}  // namespace allhands
