// How elements of each kind lie in memory (Stored lanes) and how they are worked on
// (Lanes): widen() turns the first into the second, narrow() the second into the first.
// Only for the translation units of reduce_table.hpp; see lanes.hpp.
#pragma once

#include "allhands/kernels/lanes.hpp"

namespace allhands {
namespace {

// Sign and payload of a NaN depend on operand order and CPU: results have only this
// one.
template <class T>
ALLHANDS_INLINE FullVector<T> one_nan(FullVector<T> x) {
  const FullVector<T> nan = FullVector<T>{} + static_cast<T>(__builtin_nanf(""));
  return x == x ? x : nan;
}

template <class T>
struct Integers {
  using Scalar = T;
  static constexpr std::size_t kSize = sizeof(T);
  using Lanes = FullVector<T>;
  using Stored = Lanes;
  static ALLHANDS_INLINE Lanes widen(Stored x) { return x; }
  static ALLHANDS_INLINE Stored narrow(Lanes x) { return x; }
};

template <class T>
struct Floats {
  using Scalar = T;
  static constexpr std::size_t kSize = sizeof(T);
  using Lanes = FullVector<T>;
  using Stored = Lanes;
  static ALLHANDS_INLINE Lanes widen(Stored x) { return x; }
  static ALLHANDS_INLINE Stored narrow(Lanes x) { return one_nan<T>(x); }
};

// bool: any nonzero byte is true, only 0 and 1 are written.
struct Truths {
  using Scalar = std::uint8_t;
  static constexpr std::size_t kSize = 1;
  using Lanes = FullVector<std::uint8_t>;
  using Stored = Lanes;
  static ALLHANDS_INLINE Lanes widen(Stored x) {
    return bits_as<Lanes>(x != 0) & static_cast<std::uint8_t>(1);
  }
  static ALLHANDS_INLINE Stored narrow(Lanes x) { return x; }
};

using Words = FullVector<std::uint32_t>;
using HalfWords = Vector<std::uint16_t, kFullLanes<float>>;

struct BFloat16s {
  using Scalar = float;
  static constexpr std::size_t kSize = 2;
  using Lanes = FullVector<float>;
  using Stored = HalfWords;
  static ALLHANDS_INLINE Lanes widen(Stored x) {
    return bits_as<Lanes>(__builtin_convertvector(x, Words) << 16);
  }
  // Round to nearest even: carries out of the lower half, or out of its middle if odd.
  static ALLHANDS_INLINE Stored narrow(Lanes x) {
    const auto bits = bits_as<Words>(one_nan<float>(x));
    const Words rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return __builtin_convertvector(rounded, Stored);
  }
};

struct Float16s {
  using Scalar = float;
  static constexpr std::size_t kSize = 2;
  using Lanes = FullVector<float>;
  using Stored = HalfWords;

#if defined(ALLHANDS_AVX512)
  // Masked, as GCC 12 warns about its own header's unmasked intrinsics; same code.
  static constexpr __mmask16 kAll = 0xffff;

  static ALLHANDS_INLINE Lanes widen(Stored x) {
    return bits_as<Lanes>(_mm512_maskz_cvtph_ps(kAll, bits_as<__m256i>(x)));
  }
  static ALLHANDS_INLINE Stored narrow(Lanes x) {
    return bits_as<Stored>(
        _mm512_maskz_cvtps_ph(kAll, bits_as<__m512>(one_nan<float>(x)),
                              _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
#elif defined(__F16C__)
  static ALLHANDS_INLINE Lanes widen(Stored x) {
    return bits_as<Lanes>(_mm256_cvtph_ps(bits_as<__m128i>(x)));
  }
  static ALLHANDS_INLINE Stored narrow(Lanes x) {
    return bits_as<Stored>(
        _mm256_cvtps_ph(bits_as<__m256>(one_nan<float>(x)),
                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
#else
  // 2**112 moves the exponent from float16's bias (15) to float32's (127); the product
  // is exact for subnormals too. Infinity and NaN get their exponent by hand.
  static ALLHANDS_INLINE Lanes widen(Stored x) {
    const Words half = __builtin_convertvector(x, Words);
    const Words magnitude = (half & 0x7fffu) << 13;
    const Words finite = bits_as<Words>(bits_as<Lanes>(magnitude) * 0x1p112f);
    const Words special = magnitude | 0x7f800000u;
    const Words bits = magnitude < (0x7c00u << 13) ? finite : special;
    return bits_as<Lanes>(bits | ((half & 0x8000u) << 16));
  }
  // Below 2**-14 results are subnormal: adding 0.5 leaves multiples of 2**-24 in the
  // low bits, rounded by the addition itself.
  static ALLHANDS_INLINE Stored narrow(Lanes x) {
    const auto bits = bits_as<Words>(one_nan<float>(x));
    const Words magnitude = bits & 0x7fffffffu;
    const Words subnormal =
        bits_as<Words>(bits_as<Lanes>(magnitude) + 0.5f) - 0x3f000000u;
    const Words odd = (magnitude >> 13) & 1u;
    const Words normal = (magnitude - (112u << 23) + 0xfffu + odd) >> 13;
    const Words is_nan = bits_as<Words>(magnitude > 0x7f800000u);
    const Words special = (is_nan & 0x200u) | 0x7c00u;
    Words half = magnitude < (113u << 23) ? subnormal : normal;
    half = magnitude < 0x47800000u ? half : special;  // 2**16: above all float16
    return __builtin_convertvector(half | ((bits >> 16) & 0x8000u), Stored);
  }
#endif
};

// Floats as signed integers in the order of their values, for MIN and MAX: -0 is below
// +0, and NaN beyond the end that wins. T is as wide as the float, kInfinity its bits.
template <class T, T kInfinity, bool kIsMax>
struct Ordered {
  using Scalar = T;
  static constexpr std::size_t kSize = sizeof(T);
  using Lanes = FullVector<T>;
  using Stored = Lanes;
  static constexpr T kMost = static_cast<T>(~(T{1} << (8 * sizeof(T) - 1)));
  static constexpr T kNaN = static_cast<T>(kInfinity + ((kMost - kInfinity) / 2 + 1));

  static ALLHANDS_INLINE Lanes widen(Stored x) {
    const Lanes key = flip(x);
    if constexpr (kIsMax)
      return key < ~kInfinity ? Lanes{} + kMost : key;
    else
      return key > kInfinity ? Lanes{} + static_cast<T>(~kMost) : key;
  }
  static ALLHANDS_INLINE Stored narrow(Lanes key) {
    if constexpr (kIsMax)
      return key > kInfinity ? Lanes{} + kNaN : flip(key);
    else
      return key < ~kInfinity ? Lanes{} + kNaN : flip(key);
  }

 private:
  static ALLHANDS_INLINE Lanes flip(Lanes x) { return x ^ ((x < 0) & kMost); }
};

}  // namespace
}  // namespace allhands
