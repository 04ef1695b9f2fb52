// What reduce() has to give for one element, written for clarity: one value at a time,
// 16-bit floats by their definition. Speaks in the bits of an element.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "allhands/base/factor.hpp"
#include "allhands/base/reduce_op.hpp"

namespace allhands::testing {

// A 16-bit float with `kExponentBits` bits of exponent; all of its values are
// float32's.
template <int kExponentBits>
struct Float16Bit {
  std::uint16_t bits;

  static constexpr int kFractionBits = 15 - kExponentBits;
  static constexpr int kInfinity = ((1 << kExponentBits) - 1) << kFractionBits;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;

  // The value of a magnitude; infinity counts as the power of two that follows.
  static double value(int magnitude) {
    const int exponent = magnitude >> kFractionBits;
    const int fraction = magnitude & ((1 << kFractionBits) - 1);
    const int whole = exponent == 0 ? 0 : 1 << kFractionBits;
    return std::ldexp(fraction + whole, std::max(exponent, 1) - kBias - kFractionBits);
  }

  operator float() const {
    const int magnitude = bits & 0x7fff;
    if (magnitude > kInfinity) return std::numeric_limits<float>::quiet_NaN();
    const auto positive = magnitude == kInfinity
                              ? std::numeric_limits<float>::infinity()
                              : static_cast<float>(value(magnitude));
    return bits >> 15 ? -positive : positive;
  }

  static Float16Bit nearest(float x) {
    if (std::isnan(x)) return {kInfinity | 1 << (kFractionBits - 1)};
    const double target = std::min<double>(std::fabs(x), value(kInfinity));
    int low = 0, high = kInfinity;  // value(low) <= target <= value(high)
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (value(middle) <= target ? low : high) = middle;
    }
    const double below = target - value(low), above = value(high) - target;
    const int magnitude = below != above ? (below < above ? low : high) : low + low % 2;
    return {static_cast<std::uint16_t>(magnitude | (std::signbit(x) ? 0x8000 : 0))};
  }
};
using Float16 = Float16Bit<5>;
using BFloat16 = Float16Bit<8>;

struct Bool {
  std::uint8_t byte;
};

template <class T>
struct Complex {
  T real, imag;
};

// The bits of the one NaN that results may be.
template <class T>
T quiet(T x) {
  return x == x ? x : std::numeric_limits<T>::quiet_NaN();
}

// Floats
// -------------------------------------------------------------------------------

template <class T>
T wins(bool is_max, T a, T b) {
  if (a != a || b != b) return std::numeric_limits<T>::quiet_NaN();
  const bool b_is_above = a == b ? std::signbit(a) && !std::signbit(b) : a < b;
  return b_is_above == is_max ? b : a;
}

// AVG where the sum overflows: of sources scaled down by a power of two, for them not
// to.
template <class T>
T scaled_average(const std::vector<T>& x) {
  const auto n = static_cast<T>(x.size());
  const T scale = std::exp2(-std::ceil(std::log2(n)) - 1);
  T sum = 0;
  for (const T value : x) sum += value * scale;
  const T limit = std::numeric_limits<T>::max() * scale;
  const T average = sum / n;
  return quiet(std::isfinite(sum) ? std::clamp(average, -limit, limit) / scale : sum);
}

template <class T>
T reference_float(ReduceOp op, const std::vector<T>& x, const Factor* factors) {
  const auto weighed = [&](std::size_t k) {
    return op == ReduceOp::PremulSum ? x[k] * static_cast<T>(factors[k].real) : x[k];
  };
  T result = weighed(0);
  for (std::size_t k = 1; k < x.size(); ++k) {
    if (op == ReduceOp::Product)
      result = result * x[k];
    else if (op == ReduceOp::Min || op == ReduceOp::Max)
      result = wins(op == ReduceOp::Max, result, x[k]);
    else
      result = result + weighed(k);
  }
  if (op == ReduceOp::Avg) {
    if (!std::isfinite(result)) return scaled_average(x);
    result = result / static_cast<T>(x.size());
  }
  return quiet(result);
}

// One element of each kind
// ---------------------------------------------------------------

template <int kExponentBits>
Float16Bit<kExponentBits> reference(ReduceOp op,
                                    const std::vector<Float16Bit<kExponentBits>>& x,
                                    const Factor* factors) {
  const std::vector<float> wide(x.begin(), x.end());
  return Float16Bit<kExponentBits>::nearest(reference_float(op, wide, factors));
}

template <class T>
Complex<T> reference(ReduceOp op, const std::vector<Complex<T>>& x,
                     const Factor* factors) {
  if (op != ReduceOp::Product) {
    std::vector<T> real, imag;
    for (const Complex<T>& value : x) {
      real.push_back(value.real);
      imag.push_back(value.imag);
    }
    return {reference_float(op, real, factors), reference_float(op, imag, factors)};
  }
  Complex<T> a = x[0];
  for (std::size_t k = 1; k < x.size(); ++k) {
    const Complex<T> b = x[k];
    a = {a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real};
  }
  return {quiet(a.real), quiet(a.imag)};
}

inline Bool reference(ReduceOp op, const std::vector<Bool>& x, const Factor*) {
  const auto num_true =
      std::count_if(x.begin(), x.end(), [](Bool b) { return b.byte; });
  const bool all = num_true == static_cast<std::ptrdiff_t>(x.size());
  switch (op) {
    case ReduceOp::Product:
    case ReduceOp::Min:
    case ReduceOp::BitAnd:
      return {all};
    case ReduceOp::BitXor:
      return {num_true % 2 == 1};
    default:
      return {num_true > 0};
  }
}

// Numbers that C++ has. Integers wrap: computed in 128 bits, cut off at the end.
template <class T>
T reference(ReduceOp op, const std::vector<T>& x, const Factor* factors) {
  if constexpr (std::is_floating_point_v<T>) {
    return reference_float(op, x, factors);
  } else {
    __extension__ typedef unsigned __int128 Wrapping;
    __extension__ typedef __int128 Wide;
    Wrapping sum = 0, premul_sum = 0, product = 1;
    T every = x[0], some = 0, odd = 0;
    for (std::size_t k = 0; k < x.size(); ++k) {
      const auto value = static_cast<Wrapping>(x[k]);
      sum += value;
      product *= value;
      premul_sum += value * static_cast<Wrapping>(factors[k].integer);
      every = static_cast<T>(every & x[k]);
      some = static_cast<T>(some | x[k]);
      odd = static_cast<T>(odd ^ x[k]);
    }
    switch (op) {
      case ReduceOp::Sum:
        return static_cast<T>(sum);
      case ReduceOp::Avg:
        return static_cast<T>(static_cast<Wide>(sum) / static_cast<Wide>(x.size()));
      case ReduceOp::Product:
        return static_cast<T>(product);
      case ReduceOp::Min:
        return *std::min_element(x.begin(), x.end());
      case ReduceOp::Max:
        return *std::max_element(x.begin(), x.end());
      case ReduceOp::BitAnd:
        return every;
      case ReduceOp::BitOr:
        return some;
      case ReduceOp::BitXor:
        return odd;
      default:
        return static_cast<T>(premul_sum);
    }
  }
}

}  // namespace allhands::testing
