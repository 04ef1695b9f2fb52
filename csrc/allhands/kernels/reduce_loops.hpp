// The reduction kernels: what the ops do to lanes, the loop over memory, the table.
// Only for the translation units of reduce_table.hpp; see lanes.hpp.
#pragma once

#include "allhands/kernels/elements.hpp"
#include "allhands/kernels/reduce_table.hpp"

namespace allhands {
namespace {

// What every op offers: weigh() is applied to source k, combine() makes one of two, and
// finish() gets what has come of all `n` sources, with a way to load source(k) again.
struct Plain {
  Plain(int, const double*) {}
  template <class V>
  ALLHANDS_INLINE V weigh(V x, int) const {
    return x;
  }
  template <class V, class Source>
  ALLHANDS_INLINE V finish(V x, int, Source) const {
    return x;
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

template <class T>
constexpr bool kIsFloat = static_cast<T>(0.5) != 0;

// Multiplies source k by factors[k]; integers wrap.
template <class T>
struct PremulSum : Sum {
  PremulSum(int n, const double* f) : Sum(n, f), factors(f) {}
  template <class V>
  ALLHANDS_INLINE V weigh(V x, int k) const {
    if constexpr (kIsFloat<T>)
      return x * static_cast<T>(factors[k]);
    else
      return x * static_cast<T>(static_cast<std::int64_t>(factors[k]));
  }
  const double* factors;
};

// The sum of floats divided by the number of sources.
template <class T>
struct Average : Sum {
  Average(int n, const double* f) : Sum(n, f), num_sources(static_cast<T>(n)) {
    for (int i = 1; i < n; i *= 2) scale /= 2;
  }

  template <class V, class Source>
  ALLHANDS_INLINE V finish(V sum, int n, Source source) const {
    const V average = sum / num_sources;
    if (any(sum - sum != 0)) [[unlikely]]
      return sum - sum == 0 ? average : average_scaled<V>(n, source);
    return average;
  }

 private:
  // For sums that overflow: the sources scaled down such that theirs does not.
  template <class V, class Source>
  [[gnu::noinline, gnu::cold]] V average_scaled(int n, Source source) const {
    constexpr T kMax = static_cast<T>(sizeof(T) == 4 ? __FLT_MAX__ : __DBL_MAX__);
    V sum = source(0) * scale;
    for (int k = 1; k < n; ++k) sum += source(k) * scale;
    V average = sum / num_sources;
    const T limit = kMax * scale;  // rounding may have passed the largest source
    const auto is_finite = sum - sum == 0;
    average = is_finite & (average > limit) ? V{} + limit : average;
    average = is_finite & (average < -limit) ? V{} - limit : average;
    return average / scale;
  }

  T num_sources;
  T scale = static_cast<T>(0.5);  // a power of two, at most 1 / (2 num_sources)
};

// One step of the loop: kVectors vectors of each source, from byte `at` on.
template <class Element, int kVectors, class Op, class Access>
ALLHANDS_INLINE void reduce_step(const Op& op, char* dst, const char* const* sources,
                                 int n, std::size_t at, Access access) {
  using Stored = typename Element::Stored;
  const auto load = [&](int k, int v) {
    const char* from = sources[k] + at + static_cast<std::size_t>(v) * sizeof(Stored);
    return op.weigh(Element::widen(access.template load<Stored>(from)), k);
  };
  typename Element::Lanes result[kVectors];
  for (int v = 0; v < kVectors; ++v) result[v] = load(0, v);
  for (int k = 1; k < n; ++k)
    for (int v = 0; v < kVectors; ++v) result[v] = op.combine(result[v], load(k, v));
  for (int v = 0; v < kVectors; ++v) {
    result[v] = op.finish(result[v], n, [=](int k) { return load(k, v); });
    char* to = dst + at + static_cast<std::size_t>(v) * sizeof(Stored);
    access.store(to, Element::narrow(result[v]));
  }
}

// kSources: the number of sources if the compiler is to know it, else 0.
template <class Element, int kSources, class Op>
void reduce_loop(const Op& op, char* dst, const char* const* sources, int num_sources,
                 std::size_t num_bytes) {
  constexpr int kVectors = 4;
  constexpr std::size_t kVector = sizeof(typename Element::Stored);
  const int n = kSources == 0 ? num_sources : kSources;
  std::size_t at = 0;
  for (; at + kVectors * kVector <= num_bytes; at += kVectors * kVector)
    reduce_step<Element, kVectors>(op, dst, sources, n, at, Whole{});
  for (; at + kVector <= num_bytes; at += kVector)
    reduce_step<Element, 1>(op, dst, sources, n, at, Whole{});
  if (at < num_bytes)
    reduce_step<Element, 1>(op, dst, sources, n, at, Partial{num_bytes - at});
}

template <class Element, class Op, std::size_t kComponents = 1>
void reduce_lanes(void* dst, const void* const* sources, int num_sources,
                  std::size_t count, const double* factors) {
  const Op op(num_sources, factors);
  const auto to = static_cast<char*>(dst);
  const auto from = reinterpret_cast<const char* const*>(sources);
  const std::size_t num_bytes = count * kComponents * Element::kSize;
  switch (num_sources) {
    case 2:
      return reduce_loop<Element, 2>(op, to, from, num_sources, num_bytes);
    case 3:
      return reduce_loop<Element, 3>(op, to, from, num_sources, num_bytes);
    case 4:
      return reduce_loop<Element, 4>(op, to, from, num_sources, num_bytes);
    default:
      return reduce_loop<Element, 0>(op, to, from, num_sources, num_bytes);
  }
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

// Exact in Wide; C's division rounds toward zero.
template <class T, class Wide>
void average_integers(void* dst, const void* const* sources, int num_sources,
                      std::size_t count, const double*) {
  for (std::size_t i = 0; i < count; ++i) {
    Wide sum = 0;
    for (int k = 0; k < num_sources; ++k) sum += load_scalar<T>(sources[k], i);
    store_scalar(dst, i, static_cast<T>(sum / num_sources));
  }
}

template <class T>
struct Complex {
  T real, imag;
};

template <class T>
void multiply_complex(void* dst, const void* const* sources, int num_sources,
                      std::size_t count, const double*) {
  const T nan = static_cast<T>(__builtin_nanf(""));
  for (std::size_t i = 0; i < count; ++i) {
    auto a = load_scalar<Complex<T>>(sources[0], i);
    for (int k = 1; k < num_sources; ++k) {
      const auto b = load_scalar<Complex<T>>(sources[k], i);
      a = {a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real};
    }
    a = {a.real == a.real ? a.real : nan, a.imag == a.imag ? a.imag : nan};
    store_scalar(dst, i, a);
  }
}

struct Row {
  ReduceKernel (&kernels)[kNumReduceOps];
  constexpr ReduceKernel& operator[](ReduceOp op) {
    return kernels[static_cast<int>(op)];
  }
};

constexpr void fill_bool(Row row) {
  row[ReduceOp::Sum] = row[ReduceOp::Max] = reduce_lanes<Truths, Or>;
  row[ReduceOp::Product] = row[ReduceOp::Min] = reduce_lanes<Truths, And>;
  row[ReduceOp::BitAnd] = reduce_lanes<Truths, And>;
  row[ReduceOp::BitOr] = reduce_lanes<Truths, Or>;
  row[ReduceOp::BitXor] = reduce_lanes<Truths, Xor>;
}

// Unsigned arithmetic wraps and has the same bits.
template <class T, class Unsigned, class Wide>
constexpr void fill_integers(Row row) {
  row[ReduceOp::Sum] = reduce_lanes<Integers<Unsigned>, Sum>;
  row[ReduceOp::Avg] = average_integers<T, Wide>;
  row[ReduceOp::Product] = reduce_lanes<Integers<Unsigned>, Product>;
  row[ReduceOp::Min] = reduce_lanes<Integers<T>, Min>;
  row[ReduceOp::Max] = reduce_lanes<Integers<T>, Max>;
  row[ReduceOp::BitAnd] = reduce_lanes<Integers<Unsigned>, And>;
  row[ReduceOp::BitOr] = reduce_lanes<Integers<Unsigned>, Or>;
  row[ReduceOp::BitXor] = reduce_lanes<Integers<Unsigned>, Xor>;
  row[ReduceOp::PremulSum] = reduce_lanes<Integers<Unsigned>, PremulSum<Unsigned>>;
}

// Key: the signed integer of the element's size.
template <class Element, class Key, Key kInfinity>
constexpr void fill_floats(Row row) {
  using T = typename Element::Scalar;
  row[ReduceOp::Sum] = reduce_lanes<Element, Sum>;
  row[ReduceOp::Avg] = reduce_lanes<Element, Average<T>>;
  row[ReduceOp::Product] = reduce_lanes<Element, Product>;
  row[ReduceOp::Min] = reduce_lanes<Ordered<Key, kInfinity, false>, Min>;
  row[ReduceOp::Max] = reduce_lanes<Ordered<Key, kInfinity, true>, Max>;
  row[ReduceOp::PremulSum] = reduce_lanes<Element, PremulSum<T>>;
}

template <class T>
constexpr void fill_complex(Row row) {
  row[ReduceOp::Sum] = reduce_lanes<Floats<T>, Sum, 2>;
  row[ReduceOp::Avg] = reduce_lanes<Floats<T>, Average<T>, 2>;
  row[ReduceOp::Product] = multiply_complex<T>;
  row[ReduceOp::PremulSum] = reduce_lanes<Floats<T>, PremulSum<T>, 2>;
}

constexpr ReduceTable make_reduce_table(const char* name) {
  __extension__ typedef __int128 Int128;
  ReduceTable table{name, {}};
  const auto row = [&](DType dtype) {
    return Row{table.kernels[static_cast<int>(dtype)]};
  };
  fill_bool(row(DType::Bool));
  fill_integers<std::int8_t, std::uint8_t, std::int64_t>(row(DType::Int8));
  fill_integers<std::int16_t, std::uint16_t, std::int64_t>(row(DType::Int16));
  fill_integers<std::int32_t, std::uint32_t, std::int64_t>(row(DType::Int32));
  fill_integers<std::int64_t, std::uint64_t, Int128>(row(DType::Int64));
  fill_integers<std::uint8_t, std::uint8_t, std::int64_t>(row(DType::UInt8));
  fill_integers<std::uint16_t, std::uint16_t, std::int64_t>(row(DType::UInt16));
  fill_integers<std::uint32_t, std::uint32_t, std::int64_t>(row(DType::UInt32));
  fill_integers<std::uint64_t, std::uint64_t, Int128>(row(DType::UInt64));
  fill_floats<Float16s, std::int16_t, 0x7c00>(row(DType::Float16));
  fill_floats<BFloat16s, std::int16_t, 0x7f80>(row(DType::BFloat16));
  fill_floats<Floats<float>, std::int32_t, 0x7f800000>(row(DType::Float32));
  fill_floats<Floats<double>, std::int64_t, 0x7ff0000000000000>(row(DType::Float64));
  fill_complex<float>(row(DType::Complex64));
  fill_complex<double>(row(DType::Complex128));
  return table;
}

}  // namespace
}  // namespace allhands
