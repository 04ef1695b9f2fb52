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
  Float4E2M1FnX2,  // two in a byte, which is one element
  Float8E4M3Fn,
  Float8E4M3FnUz,
  Float8E5M2,
  Float8E5M2FnUz,
  Float8E8M0Fnu,
  Float16,
  BFloat16,
  Float32,
  Float64,
  Complex64,
  Complex128,
};
inline constexpr int kNumDTypes = 21;

// The bytes of one element.
std::size_t size_of(DType dtype);
// NumPy's name: "float32", "bool", ...
const char* name_of(DType dtype);

bool is_complex(DType dtype);
bool is_byte_float(DType dtype);  // of 8 bits or less: is moved, but not reduced
bool is_integral(DType dtype);    // bool counts as integral

}  // namespace allhands
