// Vectors of the widest kind that the compiler's flags allow, in GCC's vector language.
//
// Only for the translation units of reduce_table.hpp. Everything here is local to the
// translation unit that includes it and is always inlined, and no function of std is
// used: the linker could share an inline function, and so carry wide instructions to
// CPUs without them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define ALLHANDS_INLINE inline __attribute__((always_inline))

namespace allhands {
namespace {

#if defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#define ALLHANDS_AVX512
constexpr std::size_t kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr std::size_t kVectorBytes = 32;
#else
constexpr std::size_t kVectorBytes = 16;
#endif

// A vector of kLanes T, in GCC's notation.
template <class T, std::size_t kLanes>
struct VectorOf {
  typedef T type __attribute__((vector_size(kLanes * sizeof(T))));
};
template <class T, std::size_t kLanes>
using Vector = typename VectorOf<T, kLanes>::type;

// The number of T that one register holds.
template <class T>
inline constexpr std::size_t kFullLanes = kVectorBytes / sizeof(T);
template <class T>
using FullVector = Vector<T, kFullLanes<T>>;

template <class To, class From>
ALLHANDS_INLINE To bits_as(From from) {
  return reinterpret_cast<To>(from);
}

// Lane i of the result is lane kFrom(i, lanes of one) of `a` followed by `b`.
template <auto kFrom, class V, int... kLane>
ALLHANDS_INLINE V shuffle_lanes(V a, V b, std::integer_sequence<int, kLane...>) {
  constexpr int kNumLanes = sizeof...(kLane);
#if defined(__clang__)
  return __builtin_shufflevector(a, b, kFrom(kLane, kNumLanes)...);
#else
  return __builtin_shuffle(a, b, decltype(a < b){kFrom(kLane, kNumLanes)...});
#endif
}
template <auto kFrom, class V>
ALLHANDS_INLINE V shuffle(V a, V b) {
  constexpr int kNumLanes = sizeof(V) / sizeof(a[0]);
  return shuffle_lanes<kFrom>(a, b, std::make_integer_sequence<int, kNumLanes>{});
}

// Loads and stores whole vectors.
struct Whole {
  template <class V>
  ALLHANDS_INLINE V load(const char* from) const {
    V lanes;
    __builtin_memcpy(&lanes, from, sizeof lanes);
    return lanes;
  }
  template <class V>
  ALLHANDS_INLINE void store(char* to, V lanes) const {
    __builtin_memcpy(to, &lanes, sizeof lanes);
  }
};

// Loads and stores the first `bytes` of a vector, fewer than all; the rest is loaded as
// zero.
struct Partial {
  std::size_t bytes;

  template <class V>
  ALLHANDS_INLINE V load(const char* from) const {
#if defined(ALLHANDS_AVX512)
    if constexpr (sizeof(V) == 64)
      return bits_as<V>(_mm512_maskz_loadu_epi8(mask(), from));
    else if constexpr (sizeof(V) == 32)
      return bits_as<V>(_mm256_maskz_loadu_epi8(static_cast<__mmask32>(mask()), from));
    else
      return bits_as<V>(_mm_maskz_loadu_epi8(static_cast<__mmask16>(mask()), from));
#else
    V lanes{};
    __builtin_memcpy(&lanes, from, bytes);
    return lanes;
#endif
  }
  template <class V>
  ALLHANDS_INLINE void store(char* to, V lanes) const {
#if defined(ALLHANDS_AVX512)
    if constexpr (sizeof(V) == 64)
      _mm512_mask_storeu_epi8(to, mask(), bits_as<__m512i>(lanes));
    else if constexpr (sizeof(V) == 32)
      _mm256_mask_storeu_epi8(to, static_cast<__mmask32>(mask()),
                              bits_as<__m256i>(lanes));
    else
      _mm_mask_storeu_epi8(to, static_cast<__mmask16>(mask()), bits_as<__m128i>(lanes));
#else
    __builtin_memcpy(to, &lanes, bytes);
#endif
  }

 private:
  ALLHANDS_INLINE unsigned long long mask() const { return (1ULL << bytes) - 1; }
};

// Whether any lane of a comparison's result is true.
template <class V>
ALLHANDS_INLINE bool any(V mask) {
#if defined(__AVX2__)
  if constexpr (sizeof(V) == 16) {
    const auto lanes = bits_as<__m128i>(mask);
    return _mm_testz_si128(lanes, lanes) == 0;
  } else if constexpr (sizeof(V) == 32) {
    const auto lanes = bits_as<__m256i>(mask);
    return _mm256_testz_si256(lanes, lanes) == 0;
  }
#endif
#if defined(ALLHANDS_AVX512)
  if constexpr (sizeof(V) == 64) {
    const auto lanes = bits_as<__m512i>(mask);
    return _mm512_test_epi32_mask(lanes, lanes) != 0;
  }
#endif
  std::uint64_t words[sizeof(V) / 8], some = 0;
  __builtin_memcpy(words, &mask, sizeof words);
  for (const std::uint64_t word : words) some |= word;
  return some != 0;
}

}  // namespace
}  // namespace allhands
