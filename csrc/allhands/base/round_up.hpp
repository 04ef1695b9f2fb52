// Sizes in whole pages and the like.
#pragma once

#include <cstddef>

namespace allhands {

// The smallest multiple of `to` that is not less than `value`.
constexpr std::size_t round_up(std::size_t value, std::size_t to) {
  return (value + to - 1) / to * to;
}

}  // namespace allhands
