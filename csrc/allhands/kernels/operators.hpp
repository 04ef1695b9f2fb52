// What the reduce operations do to lanes. Only for the translation units of
// reduce_table.hpp; see lanes.hpp.
#pragma once

#include "allhands/base/factor.hpp"
#include "allhands/kernels/elements.hpp"

namespace allhands {
namespace {

// The functions of every op: weigh() is applied to source k, combine() makes one value
// of two, and finish() is applied to the combination of all. If that may not be finite,
// settle() is called instead; it can load the sources again. narrow() makes one of the
// parts.
struct Plain {
  Plain(int, const Factor*) {}
  template <class V>
  ALLHANDS_INLINE V weigh(V x, int) const {
    return x;
  }
  template <class V>
  ALLHANDS_INLINE V finish(V x) const {
    return x;
  }
  template <class V, class Source>
  ALLHANDS_INLINE V settle(V x, int, Source) const {
    return x;
  }
  template <class Element>
  ALLHANDS_INLINE typename Element::Stored narrow(
      const typename Element::Parts& x) const {
    return Element::narrow(x);
  }
};

#define ALLHANDS_OP(Name, expression)            \
  struct Name : Plain {                          \
    using Plain::Plain;                          \
    template <class V>                           \
    static ALLHANDS_INLINE V combine(V a, V b) { \
      return expression;                         \
    }                                            \
  }
ALLHANDS_OP(Sum, (a + b));
ALLHANDS_OP(Product, (a * b));
ALLHANDS_OP(Min, (b < a ? b : a));
ALLHANDS_OP(Max, (a < b ? b : a));
ALLHANDS_OP(And, (a & b));
ALLHANDS_OP(Or, (a | b));
ALLHANDS_OP(Xor, (a ^ b));
#undef ALLHANDS_OP

// Multiplies source k by factors[k]; integers wrap. A NaN among the factors loses its
// payload, as BFloat16s would round it.
template <class T>
struct PremulSum : Sum {
  PremulSum(int n, const Factor* f) : Sum(n, f), factors(f) {}
  template <class V>
  ALLHANDS_INLINE V weigh(V x, int k) const {
    if constexpr (static_cast<T>(0.5) != 0)
      return x * one_nan(static_cast<T>(factors[k].real));
    else
      return x * static_cast<T>(factors[k].integer);
  }
  const Factor* factors;
};

// The sum of floats divided by the number of sources. If that is a power of two, it is
// multiplied by its inverse, which gives the same bits several times faster.
template <class T>
struct Average : Sum {
  Average(int n, const Factor* f)
      : Sum(n, f), num_sources(static_cast<T>(n)), is_power((n & (n - 1)) == 0) {
    for (int i = 1; i < n; i *= 2) scale /= 2;
  }

  template <class V>
  ALLHANDS_INLINE V finish(V sum) const {
    return is_power ? sum * (1 / num_sources) : sum / num_sources;
  }

  // For sums that overflowed: adds the sources scaled down so that their sum does not.
  template <class V, class Source>
  V settle(V sum, int n, Source source) const {
    constexpr T kMax = static_cast<T>(sizeof(T) == 4 ? __FLT_MAX__ : __DBL_MAX__);
    V scaled = source(0) * scale;
    for (int k = 1; k < n; ++k) scaled += source(k) * scale;
    V average = scaled / num_sources;
    const T limit = kMax * scale;  // rounding may have exceeded the largest source
    const auto is_finite = scaled - scaled == 0;
    average = (is_finite & (average > limit)) ? V{} + limit : average;
    average = (is_finite & (average < -limit)) ? V{} - limit : average;
    return sum - sum == 0 ? finish(sum) : average / scale;
  }

  T num_sources;
  bool is_power;
  T scale = static_cast<T>(0.5);  // a power of two, at most 1 / (2 num_sources)
};

// The sum of SplitIntegers divided by the number of sources, at most kMostSources, and
// rounded toward zero. It computes in doubles, as no CPU divides lanes of integers. All
// values except the inverse are whole numbers that doubles hold. So a quotient is first
// one of the two whole numbers next to the exact one, and the remainder tells which is
// right.
template <class T>
struct SplitAverage : Sum {
  static constexpr int kMostSources = 1 << 18;  // 1.5 * 2**32 times this is below 2**51
  using Integers = FullVector<T>;
  using Doubles = FullVector<double>;

  SplitAverage(int n, const Factor* f)
      : Sum(n, f), num_sources(n), inverse(1 / static_cast<double>(n)) {}

  template <class Element>
  ALLHANDS_INLINE typename Element::Stored narrow(
      const typename Element::Parts& sums) const {
    const Doubles upper = to_double(sums[1]);
    const Doubles upper_quotient = nearest(upper * inverse);
    const Doubles rest =
        (upper - upper_quotient * num_sources) * 0x1p32 + to_double(sums[0]);
    const Doubles quotient = nearest(rest * inverse);
    const Doubles remainder = rest - quotient * num_sources;
    using Lanes = typename Element::Lanes;
    const auto rounded = bits_as<Integers>(
        Element::join(to_integer<Lanes>(quotient), to_integer<Lanes>(upper_quotient)));
    if constexpr (kVectorBytes > 16)
      return bits_as<Lanes>(toward_zero(rounded, rounded, remainder));
    // SSE2 compares no integers of 64 bits; as a float it has the same sign.
    constexpr double kMove = static_cast<double>(Element::kMove >> 32);
    const Doubles sign = (upper_quotient - kMove) * 0x1p32 + quotient;
    return bits_as<Lanes>(toward_zero(rounded, sign, remainder));
  }

 private:
  // Added to a number below 2**51, it leaves the nearest whole number in the low bits.
  static constexpr double kRounder = 0x1.8p52;

  static ALLHANDS_INLINE Doubles nearest(Doubles x) {
    return (x + kRounder) - kRounder;
  }
  template <class V>
  static ALLHANDS_INLINE V to_integer(Doubles x) {
    return bits_as<V>(x + kRounder) - bits_as<V>(Doubles{} + kRounder);
  }
  template <class V>
  static ALLHANDS_INLINE Doubles to_double(V x) {
    return bits_as<Doubles>(x + bits_as<V>(Doubles{} + kRounder)) - kRounder;
  }
  // A comparison gives -1 where it is true. A quotient of 0 is already right.
  template <class Sign>
  static ALLHANDS_INLINE Integers toward_zero(Integers quotient, Sign sign,
                                              Doubles remainder) {
    const auto is_above = (remainder < 0) & (sign > 0);
    quotient += bits_as<Integers>(is_above);
    if constexpr (static_cast<T>(-1) > 0) return quotient;
    const auto is_below = (remainder > 0) & (sign < 0);
    return quotient - bits_as<Integers>(is_below);
  }

  double num_sources;
  double inverse;
};

// PRODUCT of complex numbers, whose real and imaginary parts alternate in the lanes.
struct ComplexProduct : Plain {
  using Plain::Plain;
  template <class V>
  static ALLHANDS_INLINE V combine(V a, V b) {
    const V reals = shuffle<[](int lane, int) { return lane & ~1; }>(a, a);
    const V imaginaries = shuffle<[](int lane, int) { return lane | 1; }>(a, a);
    const V swapped = shuffle<[](int lane, int) { return lane ^ 1; }>(b, b);
    const V straight = reals * b, crossed = imaginaries * swapped;
    return shuffle<[](int lane, int num_lanes) {
      return lane % 2 == 0 ? lane : num_lanes + lane;
    }>(straight - crossed, straight + crossed);
  }
};

}  // namespace
}  // namespace allhands
