// The number that PREMUL_SUM multiplies one rank's values by: a double and, for an
// integer, also the exact integer. So integers beyond 2**53 stay exact.
//
// It is stored in shared memory as it is. It has no inline functions, as the kernels
// may read it; see kernels/lanes.hpp.
#pragma once

#include <cstdint>

namespace allhands {

struct Factor {
  double real = 1;            // for floats and complex numbers
  std::uint64_t integer = 1;  // for integers, modulo 2**64; valid if is_integer
  bool is_integer = true;     // an integer in [-2**63, 2**64)

  Factor() = default;
  Factor(double value);  // not explicit: any double is a factor
};

}  // namespace allhands
