// Every kernel of every instruction set against one reference, bit for bit: all dtypes
// and ops, numbers of sources, lengths around the vectors' ends, odd addresses, in
// place.
#include "allhands/kernels/reduce.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "allhands/base/error.hpp"
#include "allhands/kernels/reduce_table.hpp"
#include "check.hpp"
#include "reduce_reference.hpp"
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace {

using namespace allhands;
using namespace allhands::testing;

std::mt19937_64 random_bits(1);

std::size_t random_below(std::size_t limit) { return random_bits() % limit; }

// Calls body(T{}) with the C++ type of `dtype`'s elements.
template <class Body>
void with_type_of(DType dtype, Body body) {
  switch (dtype) {
    case DType::Bool:
      return body(Bool{});
    case DType::Int8:
      return body(std::int8_t{});
    case DType::Int16:
      return body(std::int16_t{});
    case DType::Int32:
      return body(std::int32_t{});
    case DType::Int64:
      return body(std::int64_t{});
    case DType::UInt8:
      return body(std::uint8_t{});
    case DType::UInt16:
      return body(std::uint16_t{});
    case DType::UInt32:
      return body(std::uint32_t{});
    case DType::UInt64:
      return body(std::uint64_t{});
    case DType::Float16:
      return body(Float16{});
    case DType::BFloat16:
      return body(BFloat16{});
    case DType::Float32:
      return body(float{});
    case DType::Float64:
      return body(double{});
    case DType::Complex64:
      return body(Complex<float>{});
    case DType::Complex128:
      return body(Complex<double>{});
    default:  // no kernel reduces floats of 8 bits and less
      return;
  }
}

// A NaN with a payload, an infinity, a zero, a largest or smallest number, or 1; as
// bits of a float with this many bits of fraction.
std::uint64_t special_bits(int num_bits, int fraction_bits) {
  const std::uint64_t sign = random_bits() % 2 << (num_bits - 1);
  const std::uint64_t one = 1,
                      infinity = (one << (num_bits - 1)) - (one << fraction_bits);
  const std::uint64_t fraction = random_bits() % (one << fraction_bits);
  const std::uint64_t choices[] = {
      infinity | fraction,        infinity, infinity - 1, 0, 1,
      (one << fraction_bits) - 1, fraction};
  return choices[random_below(7)] | sign;
}

template <class T>
T random_element() {
  T element;
  std::uint64_t bits[2] = {random_bits(), random_bits()};
  const bool is_special = random_below(8) == 0;
  const auto small = static_cast<int>(random_below(200)) - 100;
  if constexpr (requires { element.real; }) {
    using Part = decltype(element.real);
    return {random_element<Part>(), random_element<Part>()};
  } else if constexpr (requires { element.bits; }) {
    if (is_special)
      return {static_cast<std::uint16_t>(special_bits(16, T::kFractionBits))};
    if (random_below(2)) return T::nearest(static_cast<float>(small) / 8);
  } else if constexpr (requires { element.byte; }) {
    return {static_cast<std::uint8_t>(random_below(2) ? 0 : random_bits())};
  } else if constexpr (std::is_floating_point_v<T>) {
    if (is_special)
      bits[0] = sizeof(T) == 4 ? special_bits(32, 23) : special_bits(64, 52);
    else if (random_below(2))
      return static_cast<T>(small) / 8;
  } else if (random_below(2)) {
    return static_cast<T>(small);
  }
  std::memcpy(&element, bits, sizeof element);
  return element;
}

template <class T>
bool is_same(T a, T b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

constexpr std::size_t kGuard = 64;
constexpr unsigned char kUntouched = 0xa5;

// `count` elements of random content that start `shift` bytes off any alignment.
template <class T>
struct Memory {
  Memory(std::size_t elements, std::size_t byte_shift)
      : count(elements), shift(byte_shift), bytes(shift + count * sizeof(T) + kGuard) {
    std::fill(bytes.begin(), bytes.end(), kUntouched);
    for (std::size_t i = 0; i < count; ++i) {
      const T element = random_element<T>();
      std::memcpy(data() + i * sizeof(T), &element, sizeof(T));
    }
  }
  unsigned char* data() { return bytes.data() + shift; }
  T at(std::size_t i) const {
    T element;
    std::memcpy(&element, bytes.data() + shift + i * sizeof(T), sizeof(T));
    return element;
  }
  bool is_guard_untouched() const {
    const auto is_set = [](unsigned char byte) { return byte == kUntouched; };
    return std::all_of(bytes.end() - kGuard, bytes.end(), is_set) &&
           std::all_of(bytes.begin(), bytes.begin() + static_cast<long>(shift), is_set);
  }

  std::size_t count, shift;
  std::vector<unsigned char> bytes;
};

constexpr int kMany = 257;  // sums of so many 16-bit integers do not fit a float

// A factor that no double holds; `real` is the nearest.
Factor whole(std::uint64_t integer) {
  Factor factor = static_cast<double>(integer);
  factor.integer = integer;
  factor.is_integer = true;
  return factor;
}

const std::vector<Factor> kFactors = [] {
  const Factor some[] = {2, -1, 3, whole((1ULL << 53) + 1), 0, 7, 1, -5, whole(~0ULL)};
  std::vector<Factor> factors;
  for (std::size_t k = 0; k < kMany; ++k) factors.push_back(some[k % 9]);
  return factors;
}();

template <class T>
void test_kernel(ReduceKernel kernel, ReduceOp op, int n, std::size_t count) {
  std::vector<Memory<T>> sources;
  for (int k = 0; k < n; ++k) sources.emplace_back(count, random_below(9));
  std::vector<T> expected;
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<T> elements;
    for (const Memory<T>& source : sources) elements.push_back(source.at(i));
    expected.push_back(reference(op, elements, kFactors.data()));
  }
  Memory<T> apart(count, random_below(9));
  Memory<T>& dst = random_below(2) ? apart : sources[random_below(sources.size())];
  std::vector<const void*> pointers;
  for (Memory<T>& source : sources) pointers.push_back(source.data());
  kernel(dst.data(), pointers.data(), n, count, kFactors.data());
  for (std::size_t i = 0; i < count; ++i) CHECK(is_same(dst.at(i), expected[i]));
  CHECK(dst.is_guard_untouched());
}

void test_all_kernels_against_the_reference() {
  for (auto table = runnable_reduce_tables(); *table != nullptr; ++table)
    for (int d = 0; d < kNumDTypes; ++d)
      for (int o = 0; o < kNumReduceOps; ++o) {
        const auto dtype = static_cast<DType>(d);
        const auto op = static_cast<ReduceOp>(o);
        const ReduceKernel kernel = (*table)->find(dtype, op);
        if (kernel == nullptr) continue;
        with_type_of(dtype, [&](auto element) {
          for (const int n : {1, 2, 3, 4, 5, 9})
            for (const std::size_t count : {0, 1, 2, 15, 16, 31, 33, 64, 65, 129, 257})
              test_kernel<decltype(element)>(kernel, op, n, count);
          for (const int n : {kMany - 1, kMany})
            test_kernel<decltype(element)>(kernel, op, n, 65);
        });
      }
}

// Each float16 and bfloat16 there is, through its conversions and back.
void test_16_bit_floats_survive() {
  std::vector<std::uint16_t> all(65536), result(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  const void* pointers[] = {all.data()};
  for (auto table = runnable_reduce_tables(); *table != nullptr; ++table)
    for (const bool is_brain : {false, true}) {
      const DType dtype = is_brain ? DType::BFloat16 : DType::Float16;
      for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Min, ReduceOp::Max}) {
        (*table)->find(dtype, op)(result.data(), pointers, 1, all.size(), nullptr);
        for (std::size_t i = 0; i < all.size(); ++i) {
          const int infinity = is_brain ? 0x7f80 : 0x7c00;
          const int nan = is_brain ? 0x7fc0 : 0x7e00;
          CHECK(result[i] == ((all[i] & 0x7fff) > infinity ? nan : all[i]));
        }
      }
    }
}

// Averages next to a whole number are not rounded up to it.
template <class T>
void test_averages_of_extremes(DType dtype) {
  using Limits = std::numeric_limits<T>;
  const T extremes[] = {Limits::min(), Limits::max(), 0};
  for (int n = 1; n <= kMany; ++n)
    for (const T most : extremes)
      for (const std::uint64_t step : {std::uint64_t{1}, ~std::uint64_t{0}}) {  // -1
        const auto other = static_cast<T>(static_cast<std::uint64_t>(most) + step);
        std::vector<T> elements(static_cast<std::size_t>(n), most);
        elements[0] = other;
        std::vector<const void*> pointers;
        for (const T& element : elements) pointers.push_back(&element);
        for (auto table = runnable_reduce_tables(); *table != nullptr; ++table) {
          T result;
          (*table)->find(dtype, ReduceOp::Avg)(&result, pointers.data(), n, 1, nullptr);
          CHECK(result == reference(ReduceOp::Avg, elements, kFactors.data()));
        }
      }
}

// More sources than lanes of floats can average exactly.
template <class T>
void test_averages_of_very_many(DType dtype) {
  const T most = std::numeric_limits<T>::max(), least = std::numeric_limits<T>::min();
  for (const int n : {1 << 18, (1 << 18) + 1}) {
    std::vector<T> elements(static_cast<std::size_t>(n), most);
    elements[0] = least;
    const std::vector<Factor> factors(elements.size());
    std::vector<const void*> pointers;
    for (const T& element : elements) pointers.push_back(&element);
    for (auto table = runnable_reduce_tables(); *table != nullptr; ++table) {
      T result;
      (*table)->find(dtype, ReduceOp::Avg)(&result, pointers.data(), n, 1, nullptr);
      CHECK(result == reference(ReduceOp::Avg, elements, factors.data()));
    }
  }
}

// What a thread may have set: MXCSR or FPCR.
std::vector<std::uint64_t> float_environments() {
#if defined(__x86_64__)
  return {0x1f80,
          0x1f80 | 0x8040 /* flush */,
          0x1f80 | 0x2000 /* down */,
          0x1f80 | 0x4000 /* up */,
          0x1f80 | 0x6000 /* to zero */,
          0xffc0 /* all */,
          0x8040 /* with traps */,
          0x1f80 | 0x3f /* has happened */};
#elif defined(__aarch64__)
  return {0, 1 << 24, 1 << 22, 2 << 22, 3 << 22, (1 << 24) | (1 << 19) | (3 << 22)};
#else
  return {};
#endif
}

void set_float_environment(std::uint64_t control) {
#if defined(__x86_64__)
  _mm_setcsr(static_cast<unsigned>(control));
#elif defined(__aarch64__)
  asm volatile("msr fpcr, %0" ::"r"(control));
#endif
}

std::uint64_t float_environment() {
  std::uint64_t control = 0;
#if defined(__x86_64__)
  control = _mm_getcsr();
#elif defined(__aarch64__)
  asm volatile("mrs %0, fpcr" : "=r"(control));
#endif
  return control;
}

template <class T>
void test_float_environments(DType dtype, ReduceOp op) {
  constexpr int kSources = 3;
  constexpr std::size_t kCount = 500;
  std::vector<Memory<T>> sources;
  for (int k = 0; k < kSources; ++k) sources.emplace_back(kCount, 0);
  std::vector<const void*> pointers;
  for (Memory<T>& source : sources) pointers.push_back(source.data());
  const std::vector<Factor> factors = {1.1, 0.9, 1e-3};
  const auto run = [&] {
    std::vector<unsigned char> result(kCount * sizeof(T));
    reduce(dtype, op, result.data(), pointers.data(), kSources, kCount, factors.data());
    return result;
  };
  const std::vector<unsigned char> expected = run();
  const std::uint64_t before = float_environment();
  for (const std::uint64_t control : float_environments()) {
    set_float_environment(control);
    const std::vector<unsigned char> result = run();
    const std::uint64_t after = float_environment();
    set_float_environment(before);
    CHECK(result == expected);
    CHECK((after | 0x3f) == (control | 0x3f));
  }
}

// However the thread that calls rounds, and whether it flushes subnormals.
void test_any_float_environment_gives_the_same_bits() {
  for (const ReduceOp op :
       {ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Product, ReduceOp::PremulSum}) {
    test_float_environments<Float16>(DType::Float16, op);
    test_float_environments<BFloat16>(DType::BFloat16, op);
    test_float_environments<float>(DType::Float32, op);
    test_float_environments<double>(DType::Float64, op);
    test_float_environments<Complex<float>>(DType::Complex64, op);
    test_float_environments<Complex<double>>(DType::Complex128, op);
  }
  test_float_environments<std::int16_t>(DType::Int16, ReduceOp::Avg);
  test_float_environments<std::int32_t>(DType::Int32, ReduceOp::Avg);
  test_float_environments<std::int64_t>(DType::Int64, ReduceOp::Avg);
  test_float_environments<std::uint64_t>(DType::UInt64, ReduceOp::Avg);
}

// The bits of a NaN factor would carry into the sign where they are rounded off.
void test_a_nan_with_all_bits_as_factor() {
  const std::vector<BFloat16> ones(100, BFloat16::nearest(1));
  const std::uint64_t bits = ~std::uint64_t{0} >> 1;
  Factor factor;
  std::memcpy(&factor.real, &bits, sizeof factor.real);
  const void* pointers[] = {ones.data()};
  for (auto table = runnable_reduce_tables(); *table != nullptr; ++table) {
    std::vector<BFloat16> result(ones.size());
    (*table)->find(DType::BFloat16, ReduceOp::PremulSum)(result.data(), pointers, 1,
                                                         result.size(), &factor);
    for (const BFloat16 element : result) CHECK(element.bits == 0x7fc0);
  }
}

template <class T>
T reduced(DType dtype, ReduceOp op, std::vector<T> sources,
          std::vector<Factor> factors = {}) {
  std::vector<const void*> pointers;
  for (const T& source : sources) pointers.push_back(&source);
  T result;
  reduce(dtype, op, &result, pointers.data(), static_cast<int>(sources.size()), 1,
         factors.data());
  return result;
}

void test_what_the_documentation_promises() {
  const Float16 k40000 = Float16::nearest(40000), zero{0};
  CHECK(reduced<Float16>(DType::Float16, ReduceOp::Avg, {k40000, k40000, zero}) ==
        26672);
  for (int big = 0; big < 3; ++big) {
    std::vector<BFloat16> values(3, BFloat16::nearest(1));
    values[static_cast<std::size_t>(big)] = BFloat16::nearest(256);
    CHECK(reduced<BFloat16>(DType::BFloat16, ReduceOp::Sum, values) == 258);
  }
  const float most = std::numeric_limits<float>::max();
  CHECK(reduced<float>(DType::Float32, ReduceOp::Avg, {most, most, most}) == most);
  const double highest = std::numeric_limits<double>::max();
  for (std::size_t n = 1; n < 100; ++n) {
    const std::vector<double> values(n, -highest);
    const double average = reduced(DType::Float64, ReduceOp::Avg, values);
    CHECK(std::fabs(average / highest + 1) < 1e-14);
  }
  const std::int64_t most64 = std::numeric_limits<std::int64_t>::max();
  CHECK(reduced<std::int64_t>(DType::Int64, ReduceOp::Avg, {most64, most64}) == most64);
  CHECK(reduced<std::int8_t>(DType::Int8, ReduceOp::Avg, {-2, -3}) == -2);
  CHECK(reduced<std::uint8_t>(DType::UInt8, ReduceOp::Sum, {200, 200}) == 144);
  CHECK(std::signbit(reduced<float>(DType::Float32, ReduceOp::Min, {0.0f, -0.0f})));
  CHECK(reduced<float>(DType::Float32, ReduceOp::PremulSum, {2, 3}, {0.5, 2}) == 7);
  const std::uint64_t odd = (1ULL << 53) + 1;
  CHECK(reduced<std::uint64_t>(DType::UInt64, ReduceOp::PremulSum, {1, 1},
                               {whole(odd), whole(~0ULL)}) == odd - 1);
}

void check_refused(DType dtype, ReduceOp op, ErrorKind kind, const std::string& words) {
  try {
    check_supported("all_reduce", dtype, op);
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.kind() == kind);
    CHECK(std::string(error.what()).find(words) != std::string::npos);
  }
  CHECK_THROWS(reduced<double>(dtype, op, {0, 0}, {1, 1}), Error);
}

void test_what_is_refused() {
  check_refused(DType::Complex64, ReduceOp::Max, ErrorKind::Value,
                "all_reduce does not support RedOpType.MAX on complex tensors");
  check_refused(DType::Float32, ReduceOp::BitAnd, ErrorKind::Unsupported,
                "Cannot use ReduceOp.BAND with non-integral dtype: all_reduce got "
                "float32");
  check_refused(DType::Bool, ReduceOp::Avg, ErrorKind::Type,
                "Cannot use ReduceOp.AVG with dtype bool");
  check_supported("all_reduce", DType::Bool, ReduceOp::BitXor);
  CHECK_THROWS(check_factor(DType::Int32, 0.5), Error);
  CHECK_THROWS(check_factor(DType::UInt64, 0x1p64), Error);
  CHECK_THROWS(check_factor(DType::Int64, -0x1.8p63), Error);
  check_factor(DType::UInt64, 0x1p63);
  CHECK_THROWS(check_factor(DType::Int8, std::nan("")), Error);
  check_factor(DType::Int64, -0x1p63);
  check_factor(DType::Complex64, 0.5);
  CHECK_THROWS(reduced<int>(DType::Int32, ReduceOp::PremulSum, {1, 2}, {1, 0.5}),
               Error);
}

// A kernel is there exactly where check_supported() lets a pair through.
void test_tables_are_complete() {
  for (auto table = runnable_reduce_tables(); *table != nullptr; ++table)
    for (int d = 0; d < kNumDTypes; ++d)
      for (int o = 0; o < kNumReduceOps; ++o) {
        const auto dtype = static_cast<DType>(d);
        const auto op = static_cast<ReduceOp>(o);
        bool is_supported = true;
        try {
          check_supported("all_reduce", dtype, op);
        } catch (const Error&) {
          is_supported = false;
        }
        CHECK(((*table)->find(dtype, op) != nullptr) == is_supported);
      }
}

}  // namespace

int main() {
  test_tables_are_complete();
  test_what_is_refused();
  test_what_the_documentation_promises();
  test_16_bit_floats_survive();
  test_averages_of_extremes<std::int8_t>(DType::Int8);
  test_averages_of_extremes<std::uint8_t>(DType::UInt8);
  test_averages_of_extremes<std::int16_t>(DType::Int16);
  test_averages_of_extremes<std::uint16_t>(DType::UInt16);
  test_averages_of_extremes<std::int32_t>(DType::Int32);
  test_averages_of_extremes<std::uint32_t>(DType::UInt32);
  test_averages_of_extremes<std::int64_t>(DType::Int64);
  test_averages_of_extremes<std::uint64_t>(DType::UInt64);
  test_averages_of_very_many<std::int64_t>(DType::Int64);
  test_averages_of_very_many<std::uint64_t>(DType::UInt64);
  test_any_float_environment_gives_the_same_bits();
  test_a_nan_with_all_bits_as_factor();
  test_all_kernels_against_the_reference();
}
