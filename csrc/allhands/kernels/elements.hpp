// How elements of each kind are stored in memory (Stored, a vector) and in which form
// they are computed with (Lanes, one vector for each part). widen() makes a part,
// narrow() converts back. Only for the translation units of reduce_table.hpp; see
// lanes.hpp.
#pragma once

#include "allhands/kernels/lanes.hpp"

namespace allhands {
namespace {

using Words = FullVector<std::uint32_t>;

// What all kinds of elements have in common. T is the type that is computed with;
// kStoredSize is the size of an element in memory, in bytes.
template <class T, std::size_t kStoredSize, int kNumParts = 1>
struct Elements {
  using Scalar = T;
  using Lanes = FullVector<T>;
  using Parts = Lanes[kNumParts];
  static constexpr int kParts = kNumParts;
  static constexpr bool kHasSpecials = static_cast<T>(0.5) != 0;  // infinity and NaN
  static constexpr std::size_t kSize = kStoredSize;
};

// Sign and payload of a NaN depend on operand order and CPU, so all NaN results become
// this one. narrow() meets no other.
template <class V>
ALLHANDS_INLINE V one_nan(V x) {
  return x == x ? x : V{} + __builtin_nanf("");
}

// Elements that are computed with in their own type.
template <class T>
struct Numbers : Elements<T, sizeof(T)> {
  using Stored = FullVector<T>;
  template <int kVectors>
  static ALLHANDS_INLINE bool has_special(const Stored (&x)[kVectors]) {
    Words differences{};  // a finite number minus itself is +0
    for (const Stored& lanes : x) differences |= bits_as<Words>(lanes - lanes);
    return any(differences);
  }
  static ALLHANDS_INLINE Stored widen(Stored x, int) { return x; }
  static ALLHANDS_INLINE Stored narrow(const Stored (&x)[1]) { return x[0]; }
};

// Integers of 8 and 16 bits that are computed with as floats. Each 32-bit word has
// parts as in BFloat16s. C's conversion back rounds toward zero.
template <class T>
struct SmallIntegers : Elements<float, sizeof(T), 4 / sizeof(T)> {
  using Base = Elements<float, sizeof(T), 4 / sizeof(T)>;
  using Integer = T;
  using Stored = Words;
  using Integers = FullVector<std::int32_t>;
  static constexpr bool kHasSpecials = false;
  static constexpr int kBits = 8 * sizeof(T);
  static ALLHANDS_INLINE typename Base::Lanes widen(Stored x, int part) {
    const Words upper = x << (32 - kBits * (part + 1));  // and fill with the sign:
    const Integers integers = static_cast<T>(-1) < 0
                                  ? bits_as<Integers>(upper) >> (32 - kBits)
                                  : bits_as<Integers>(upper >> (32 - kBits));
    return __builtin_convertvector(integers, typename Base::Lanes);
  }
  static ALLHANDS_INLINE Stored narrow(const typename Base::Parts& x) {
    Stored words{};
    for (int part = 0; part < Base::kParts; ++part) {
      const auto integers = __builtin_convertvector(x[part], Integers);
      words |= (bits_as<Words>(integers) & ((1u << kBits) - 1)) << (kBits * part);
    }
    return words;
  }
};

// Integers of 32 bits that are computed with as doubles.
template <class T>
struct LargeIntegers : Elements<double, sizeof(T)> {
  using Base = Elements<double, sizeof(T)>;
  using Integer = T;
  using Stored = Vector<T, kFullLanes<double>>;
  static constexpr bool kHasSpecials = false;
  static ALLHANDS_INLINE typename Base::Lanes widen(Stored x, int) {
    return __builtin_convertvector(x, typename Base::Lanes);
  }
  static ALLHANDS_INLINE Stored narrow(const typename Base::Parts& x) {
    return __builtin_convertvector(x[0], Stored);
  }
};

// Integers of 64 bits in two halves, so that there is room for sums. Signed integers
// are shifted by 2**63 meanwhile, so that both halves are unsigned.
template <class T>
struct SplitIntegers : Elements<std::uint64_t, 8, 2> {
  using Stored = FullVector<std::uint64_t>;
  static constexpr std::uint64_t kMove = static_cast<T>(-1) < 0 ? 1ULL << 63 : 0;
  static ALLHANDS_INLINE Lanes widen(Stored x, int part) {
    return part == 0 ? x & 0xffffffffu : (x ^ kMove) >> 32;
  }
  // A half of more than 32 bits carries over.
  static ALLHANDS_INLINE Stored join(Lanes lower, Lanes upper) {
    return ((upper << 32) + lower) ^ kMove;
  }
};

// Elements of bool: any nonzero byte is true; only 0 and 1 are written.
struct Truths : Elements<std::uint8_t, 1> {
  using Stored = FullVector<std::uint8_t>;
  static ALLHANDS_INLINE Lanes widen(Stored x, int) {
    return bits_as<Stored>(x != 0) & static_cast<std::uint8_t>(1);
  }
  static ALLHANDS_INLINE Stored narrow(const Parts& x) { return x[0]; }
};

// Whether any of the 16-bit floats is infinite or NaN: its bits are not below
// infinity's.
template <std::int16_t kInfinity, class Stored, int kVectors>
ALLHANDS_INLINE bool has_special_16_bit(const Stored (&x)[kVectors]) {
  using Halves = Vector<std::int16_t, sizeof(Stored) / 2>;
  Halves most{};
  for (const Stored& lanes : x) {
    const Halves magnitude = bits_as<Halves>(lanes) & static_cast<std::int16_t>(0x7fff);
    most = most < magnitude ? magnitude : most;
  }
  return any(most >= kInfinity);
}

// bfloat16, the upper half of a float32. Of each pair in a 32-bit word, one part
// handles the lower (even) element and the other part the upper one, so no lane ever
// moves.
struct BFloat16s : Elements<float, 2, 2> {
  using Stored = Words;
  static ALLHANDS_INLINE Lanes widen(Stored x, int part) {
    return bits_as<Lanes>(part == 0 ? x << 16 : x & 0xffff0000u);
  }
  static ALLHANDS_INLINE Stored narrow(const Parts& x) {
    return (round(x[0]) >> 16) | (round(x[1]) & 0xffff0000u);
  }
  template <int kVectors>
  static ALLHANDS_INLINE bool has_special(const Stored (&x)[kVectors]) {
    return has_special_16_bit<0x7f80>(x);
  }

 private:
  // Rounds to nearest even, in the upper half. The lower half carries into it if it is
  // more than half, or exactly half and the result would be odd.
  static ALLHANDS_INLINE Words round(Lanes x) {
    const auto bits = bits_as<Words>(x);
    return bits - ((~(bits >> 16) & 1u) | 0xffff8000u);
  }
};

// IEEE's float16, as float32 in the lanes.
struct Float16s : Elements<float, 2> {
  using Stored = Vector<std::uint16_t, kFullLanes<float>>;
  static ALLHANDS_INLINE Lanes widen(Stored x, int) { return to_float32(x); }
  static ALLHANDS_INLINE Stored narrow(const Parts& x) { return to_float16(x[0]); }
  template <int kVectors>
  static ALLHANDS_INLINE bool has_special(const Stored (&x)[kVectors]) {
    return has_special_16_bit<0x7c00>(x);
  }

 private:
#if defined(ALLHANDS_AVX512)
  // Masked, as GCC 12 warns about the unmasked intrinsics of its own header; the code
  // is the same.
  static constexpr __mmask16 kAll = 0xffff;
  static ALLHANDS_INLINE Lanes to_float32(Stored x) {
    return bits_as<Lanes>(_mm512_maskz_cvtph_ps(kAll, bits_as<__m256i>(x)));
  }
  static ALLHANDS_INLINE Stored to_float16(Lanes x) {
    return bits_as<Stored>(
        _mm512_maskz_cvtps_ph(kAll, bits_as<__m512>(x), _MM_FROUND_TO_NEAREST_INT));
  }
#elif defined(__F16C__)
  static ALLHANDS_INLINE Lanes to_float32(Stored x) {
    return bits_as<Lanes>(_mm256_cvtph_ps(bits_as<__m128i>(x)));
  }
  static ALLHANDS_INLINE Stored to_float16(Lanes x) {
    return bits_as<Stored>(
        _mm256_cvtps_ph(bits_as<__m256>(x), _MM_FROUND_TO_NEAREST_INT));
  }
#else
  // 2**112 moves the exponent from float16's bias (15) to float32's (127); the product
  // is exact for subnormals too. Infinity and NaN get their exponent explicitly.
  static ALLHANDS_INLINE Lanes to_float32(Stored x) {
    const Words half = __builtin_convertvector(x, Words);
    const Words magnitude = (half & 0x7fffu) << 13;
    const Words finite = bits_as<Words>(bits_as<Lanes>(magnitude) * 0x1p112f);
    const Words special = magnitude | 0x7f800000u;
    const Words bits = magnitude < (0x7c00u << 13) ? finite : special;
    return bits_as<Lanes>(bits | ((half & 0x8000u) << 16));
  }
  // Below 2**-14 results are subnormal: adding 0.5 leaves multiples of 2**-24 in the
  // low bits, rounded by the addition itself.
  static ALLHANDS_INLINE Stored to_float16(Lanes x) {
    const auto bits = bits_as<Words>(x);
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
// +0, and NaN is beyond the end that wins. T is as wide as the float; kInfinity is the
// bits of infinity.
template <class T, T kInfinity, bool kIsMax>
struct Ordered : Elements<T, sizeof(T)> {
  using Stored = FullVector<T>;
  static constexpr T kMost = static_cast<T>(~(T{1} << (8 * sizeof(T) - 1)));
  static constexpr T kLeast = static_cast<T>(~kMost);
  static constexpr T kNaN = static_cast<T>(kInfinity + ((kMost - kInfinity) / 2 + 1));

  static ALLHANDS_INLINE Stored widen(Stored x, int) {
    const Stored key = flip(x);
    if constexpr (kIsMax)
      return key < ~kInfinity ? Stored{} + kMost : key;
    else
      return key > kInfinity ? Stored{} + kLeast : key;
  }
  static ALLHANDS_INLINE Stored narrow(const Stored (&x)[1]) {
    const Stored key = x[0];
    if constexpr (kIsMax)
      return key > kInfinity ? Stored{} + kNaN : flip(key);
    else
      return key < ~kInfinity ? Stored{} + kNaN : flip(key);
  }

 private:
  static ALLHANDS_INLINE Stored flip(Stored x) { return x ^ ((x < 0) & kMost); }
};

}  // namespace
}  // namespace allhands
