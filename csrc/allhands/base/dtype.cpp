#include "allhands/base/dtype.hpp"

namespace allhands {
namespace {

struct Row {
  const char* name;
  std::size_t size;
};

constexpr Row kRows[kNumDTypes] = {
    {"bool", 1},           {"int8", 1},
    {"int16", 2},          {"int32", 4},
    {"int64", 8},          {"uint8", 1},
    {"uint16", 2},         {"uint32", 4},
    {"uint64", 8},         {"float4_e2m1fn_x2", 1},
    {"float8_e4m3fn", 1},  {"float8_e4m3fnuz", 1},
    {"float8_e5m2", 1},    {"float8_e5m2fnuz", 1},
    {"float8_e8m0fnu", 1}, {"float16", 2},
    {"bfloat16", 2},       {"float32", 4},
    {"float64", 8},        {"complex64", 8},
    {"complex128", 16},
};

const Row& row(DType dtype) { return kRows[static_cast<std::size_t>(dtype)]; }

}  // namespace

std::size_t size_of(DType dtype) { return row(dtype).size; }
const char* name_of(DType dtype) {
  // The value may come from another rank and be invalid.
  return static_cast<int>(dtype) < kNumDTypes ? row(dtype).name : "an unknown dtype";
}
bool is_complex(DType dtype) { return dtype >= DType::Complex64; }
bool is_byte_float(DType dtype) {
  return dtype > DType::UInt64 && dtype < DType::Float16;
}
bool is_integral(DType dtype) { return dtype <= DType::UInt64; }

}  // namespace allhands
