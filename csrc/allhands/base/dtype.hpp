// Element types. The numbers are part of the descriptor that ranks compare, so they are
// the same on every rank of a job.
#pragma once

#include <cstddef>
#include <cstdint>

namespace allhands {

enum class DType : std::uint8_t {
  Bool,
  Int8,
  Int16,
  Int32,
  Int64,
  UInt8,
  UInt16,
  UInt32,
  UInt64,
  Float16,
  BFloat16,
  Float32,
  Float64,
  Complex64,
  Complex128,
};
inline constexpr int kNumDTypes = 15;

// The bytes of one element.
std::size_t size_of(DType dtype);
// NumPy's name: "float32", "bool", ...
const char* name_of(DType dtype);

bool is_complex(DType dtype);
bool is_integral(DType dtype);  // bool counts as integral

}  // namespace allhands
