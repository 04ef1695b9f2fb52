// The reduction kernels: the loop over memory, and the table. Only for the translation
// units of reduce_table.hpp; see lanes.hpp.
#pragma once

#include "allhands/kernels/elements.hpp"
#include "allhands/kernels/operators.hpp"
#include "allhands/kernels/reduce_table.hpp"

namespace allhands {
namespace {

template <class Element, int kVectors, bool kIsSpecial = false, class Op, class Access>
ALLHANDS_INLINE void reduce_step(const Op&, char*, const char* const*, int, std::size_t,
                                 Access);

// Repeats a step that has infinities or NaNs; `dst` is still unchanged.
template <class Element, int kVectors, class Op, class Access>
[[gnu::noinline, gnu::cold]] void special_step(const Op& op, char* dst,
                                               const char* const* sources, int n,
                                               std::size_t at, Access access) {
  reduce_step<Element, kVectors, true>(op, dst, sources, n, at, access);
}

// One step of the loop: kVectors vectors of each source, from byte `at` on.
template <class Element, int kVectors, bool kIsSpecial, class Op, class Access>
ALLHANDS_INLINE void reduce_step(const Op& op, char* dst, const char* const* sources,
                                 int n, std::size_t at, Access access) {
  using Stored = typename Element::Stored;
  const auto load = [&](int k, int v, int part) {
    const char* from = sources[k] + at + static_cast<std::size_t>(v) * sizeof(Stored);
    return op.weigh(Element::widen(access.template load<Stored>(from), part), k);
  };
  typename Element::Parts result[kVectors];
  for (int v = 0; v < kVectors; ++v)
    for (int p = 0; p < Element::kParts; ++p) result[v][p] = load(0, v, p);
#pragma GCC unroll 4  // up to 1.6 times as fast, and as good as fixing n
  for (int k = 1; k < n; ++k)
    for (int v = 0; v < kVectors; ++v)
      for (int p = 0; p < Element::kParts; ++p)
        result[v][p] = op.combine(result[v][p], load(k, v, p));

  Stored narrowed[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    for (int p = 0; p < Element::kParts; ++p) {
      auto& x = result[v][p];
      if constexpr (kIsSpecial)
        x = one_nan(op.settle(x, n, [&](int k) { return load(k, v, p); }));
      else
        x = op.finish(x);
    }
    narrowed[v] = op.template narrow<Element>(result[v]);
  }
  if constexpr (Element::kHasSpecials && !kIsSpecial)
    if (Element::has_special(narrowed)) [[unlikely]]
      return special_step<Element, kVectors>(op, dst, sources, n, at, access);

  for (int v = 0; v < kVectors; ++v)
    access.store(dst + at + static_cast<std::size_t>(v) * sizeof(Stored), narrowed[v]);
}

// How far ahead the sources are prefetched, in bytes. They come from other cores'
// caches or from memory, and a step of the costlier kernels is too long for the CPU to
// look far enough ahead by itself; that alone made 16-bit floats 1.3 times as slow as
// float32. Prefetching goes past the end too, as long arrays are reduced block by
// block. The destination is prefetched for writing: if it is also a source, or others
// have read it before, each store would otherwise wait for the other caches to release
// its line.
constexpr std::size_t kPrefetch = 2048;

template <std::size_t kBytes, bool kToWrite = false>
ALLHANDS_INLINE void prefetch(const char* from) {
  for (std::size_t at = 0; at < kBytes; at += 64)
    __builtin_prefetch(from + at, kToWrite);
}

template <class Element, class Op, std::size_t kComponents = 1>
void reduce_lanes(void* dst, const void* const* sources, int num_sources,
                  std::size_t count, const Factor* factors) {
  constexpr int kVectors = 4;
  constexpr std::size_t kVector = sizeof(typename Element::Stored);
  constexpr std::size_t kStep = kVectors * kVector;
  const Op op(num_sources, factors);
  const auto to = static_cast<char*>(dst);
  const auto from = reinterpret_cast<const char* const*>(sources);
  const std::size_t num_bytes = count * kComponents * Element::kSize;
  std::size_t at = 0;
  for (; at + kStep <= num_bytes; at += kStep) {
    if (num_bytes >= 2 * kPrefetch) {
      prefetch<kStep, true>(to + at + kPrefetch);
      for (int k = 0; k < num_sources; ++k) prefetch<kStep>(from[k] + at + kPrefetch);
    }
    reduce_step<Element, kVectors>(op, to, from, num_sources, at, Whole{});
  }
  for (; at + kVector <= num_bytes; at += kVector)
    reduce_step<Element, 1>(op, to, from, num_sources, at, Whole{});
  if (at < num_bytes)
    reduce_step<Element, 1>(op, to, from, num_sources, at, Partial{num_bytes - at});
}

template <class T>
ALLHANDS_INLINE T load_scalar(const void* from, std::size_t i) {
  T value;
  __builtin_memcpy(&value, static_cast<const char*>(from) + i * sizeof(T), sizeof(T));
  return value;
}

template <class T>
ALLHANDS_INLINE void store_scalar(void* to, std::size_t i, T value) {
  __builtin_memcpy(static_cast<char*>(to) + i * sizeof(T), &value, sizeof(T));
}

// C's division rounds toward zero.
template <class T, class Wide>
void average_one_by_one(void* dst, const void* const* sources, int num_sources,
                        std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    Wide sum = 0;
    for (int k = 0; k < num_sources; ++k) sum += load_scalar<T>(sources[k], i);
    store_scalar(dst, i, static_cast<T>(sum / num_sources));
  }
}

// Computes in lanes of floats if these hold all sums of num_sources exactly. Then
// quotients are right too: one that is not whole is further from the next whole number
// than the rounding error.
template <class Element>
void average_integers(void* dst, const void* const* sources, int num_sources,
                      std::size_t count, const Factor* factors) {
  using Float = typename Element::Scalar;
  constexpr int kDigits = sizeof(Float) == 4 ? __FLT_MANT_DIG__ : __DBL_MANT_DIG__;
  if (num_sources <= 1 << (kDigits - 8 * static_cast<int>(Element::kSize)))
    reduce_lanes<Element, Average<Float>>(dst, sources, num_sources, count, factors);
  else
    average_one_by_one<typename Element::Integer, std::int64_t>(dst, sources,
                                                                num_sources, count);
}

__extension__ typedef __int128 Int128;

// The average of 2**kPower numbers, rounded toward zero.
template <class T, int kPower>
void average_by_shift(void* dst, const void* const* sources, std::size_t count) {
  constexpr int kNumSources = 1 << kPower;
  for (std::size_t i = 0; i < count; ++i) {
    Int128 sum = 0;
    for (int k = 0; k < kNumSources; ++k) sum += load_scalar<T>(sources[k], i);
    // The shift rounds down, so a negative sum is raised before.
    sum += (sum >> 127) & (kNumSources - 1);
    store_scalar(dst, i, static_cast<T>(sum >> kPower));
  }
}

template <class T>
void average_64_bit_integers(void* dst, const void* const* sources, int num_sources,
                             std::size_t count, const Factor* factors) {
  using Average = SplitAverage<T>;
  if constexpr (kVectorBytes == 16) {  // two lanes are slower than none
    if (num_sources == 2) return average_by_shift<T, 1>(dst, sources, count);
    if (num_sources == 4) return average_by_shift<T, 2>(dst, sources, count);
  }
  if (num_sources <= Average::kMostSources)
    reduce_lanes<SplitIntegers<T>, Average>(dst, sources, num_sources, count, factors);
  else
    average_one_by_one<T, Int128>(dst, sources, num_sources, count);
}

// The kernels of a dtype, by reduce operation.
struct KernelRow {
  ReduceKernel (&kernels)[kNumReduceOps];
  constexpr ReduceKernel& operator[](ReduceOp op) {
    return kernels[static_cast<int>(op)];
  }
};

constexpr void fill_bool(KernelRow row) {
  row[ReduceOp::Sum] = row[ReduceOp::Max] = reduce_lanes<Truths, Or>;
  row[ReduceOp::Product] = row[ReduceOp::Min] = reduce_lanes<Truths, And>;
  row[ReduceOp::BitAnd] = reduce_lanes<Truths, And>;
  row[ReduceOp::BitOr] = reduce_lanes<Truths, Or>;
  row[ReduceOp::BitXor] = reduce_lanes<Truths, Xor>;
}

// Unsigned arithmetic wraps and gives the same bits.
template <class T, class Unsigned>
constexpr void fill_integers(KernelRow row, ReduceKernel average) {
  row[ReduceOp::Sum] = reduce_lanes<Numbers<Unsigned>, Sum>;
  row[ReduceOp::Avg] = average;
  row[ReduceOp::Product] = reduce_lanes<Numbers<Unsigned>, Product>;
  row[ReduceOp::Min] = reduce_lanes<Numbers<T>, Min>;
  row[ReduceOp::Max] = reduce_lanes<Numbers<T>, Max>;
  row[ReduceOp::BitAnd] = reduce_lanes<Numbers<Unsigned>, And>;
  row[ReduceOp::BitOr] = reduce_lanes<Numbers<Unsigned>, Or>;
  row[ReduceOp::BitXor] = reduce_lanes<Numbers<Unsigned>, Xor>;
  row[ReduceOp::PremulSum] = reduce_lanes<Numbers<Unsigned>, PremulSum<Unsigned>>;
}

// Key: the signed integer with the element's size.
template <class Element, class Key, Key kInfinity>
constexpr void fill_floats(KernelRow row) {
  using T = typename Element::Scalar;
  row[ReduceOp::Sum] = reduce_lanes<Element, Sum>;
  row[ReduceOp::Avg] = reduce_lanes<Element, Average<T>>;
  row[ReduceOp::Product] = reduce_lanes<Element, Product>;
  row[ReduceOp::Min] = reduce_lanes<Ordered<Key, kInfinity, false>, Min>;
  row[ReduceOp::Max] = reduce_lanes<Ordered<Key, kInfinity, true>, Max>;
  row[ReduceOp::PremulSum] = reduce_lanes<Element, PremulSum<T>>;
}

template <class T>
constexpr void fill_complex(KernelRow row) {
  row[ReduceOp::Sum] = reduce_lanes<Numbers<T>, Sum, 2>;
  row[ReduceOp::Avg] = reduce_lanes<Numbers<T>, Average<T>, 2>;
  row[ReduceOp::Product] = reduce_lanes<Numbers<T>, ComplexProduct, 2>;
  row[ReduceOp::PremulSum] = reduce_lanes<Numbers<T>, PremulSum<T>, 2>;
}

constexpr ReduceTable make_reduce_table(const char* name) {
  ReduceTable table{name, {}};
  const auto row = [&](DType dtype) {
    return KernelRow{table.kernels[static_cast<int>(dtype)]};
  };
  fill_bool(row(DType::Bool));
  fill_integers<std::int8_t, std::uint8_t>(
      row(DType::Int8), average_integers<SmallIntegers<std::int8_t>>);
  fill_integers<std::int16_t, std::uint16_t>(
      row(DType::Int16), average_integers<SmallIntegers<std::int16_t>>);
  fill_integers<std::int32_t, std::uint32_t>(
      row(DType::Int32), average_integers<LargeIntegers<std::int32_t>>);
  fill_integers<std::int64_t, std::uint64_t>(row(DType::Int64),
                                             average_64_bit_integers<std::int64_t>);
  fill_integers<std::uint8_t, std::uint8_t>(
      row(DType::UInt8), average_integers<SmallIntegers<std::uint8_t>>);
  fill_integers<std::uint16_t, std::uint16_t>(
      row(DType::UInt16), average_integers<SmallIntegers<std::uint16_t>>);
  fill_integers<std::uint32_t, std::uint32_t>(
      row(DType::UInt32), average_integers<LargeIntegers<std::uint32_t>>);
  fill_integers<std::uint64_t, std::uint64_t>(row(DType::UInt64),
                                              average_64_bit_integers<std::uint64_t>);
  fill_floats<Float16s, std::int16_t, 0x7c00>(row(DType::Float16));
  fill_floats<BFloat16s, std::int16_t, 0x7f80>(row(DType::BFloat16));
  fill_floats<Numbers<float>, std::int32_t, 0x7f800000>(row(DType::Float32));
  fill_floats<Numbers<double>, std::int64_t, 0x7ff0000000000000>(row(DType::Float64));
  fill_complex<float>(row(DType::Complex64));
  fill_complex<double>(row(DType::Complex128));
  return table;
}

}  // namespace
}  // namespace allhands
