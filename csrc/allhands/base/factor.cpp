#include "allhands/base/factor.hpp"

#include <cmath>

namespace allhands {

Factor::Factor(double value)
    : real(value),
      integer(0),
      is_integer(value == std::trunc(value) && value >= -0x1p63 && value < 0x1p64) {
  if (!is_integer) return;
  integer = value < 0 ? static_cast<std::uint64_t>(static_cast<std::int64_t>(value))
                      : static_cast<std::uint64_t>(value);
}

}  // namespace allhands
