// pack and unpack against a walk over every element, for random layouts and ranges.
#include "allhands/kernels/pack.hpp"

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "check.hpp"

using allhands::Buffer;
using allhands::Dimension;
using allhands::DType;

namespace {

std::mt19937 random_bits(1);

std::int64_t random_in(std::int64_t low, std::int64_t high) {  // both included
  return std::uniform_int_distribution<std::int64_t>(low, high)(random_bits);
}

struct Array {
  std::vector<unsigned char> memory;
  Buffer buffer;
  std::vector<std::size_t> starts;  // of every element in C order, as bytes of memory
};

// A random array: dimensions in any order in memory, with gaps, some reversed and, if
// `may_repeat`, some of stride 0.
Array random_array(bool may_repeat) {
  constexpr DType kDTypes[] = {DType::Bool, DType::Float16, DType::Int32,
                               DType::Complex64, DType::Complex128};
  Array array;
  array.buffer.dtype = kDTypes[random_in(0, 4)];
  const auto size = static_cast<std::int64_t>(size_of(array.buffer.dtype));
  std::vector<Dimension> dimensions(static_cast<std::size_t>(random_in(1, 4)));
  std::vector<Dimension*> order;
  for (Dimension& dimension : dimensions) order.push_back(&dimension);
  std::shuffle(order.begin(), order.end(), random_bits);

  std::int64_t extent = size, start = 0;
  for (Dimension* dimension : order) {
    dimension->size = random_in(1, 6);
    const bool repeats = may_repeat && random_in(0, 5) == 0;
    dimension->stride = repeats ? 0 : extent + (random_in(0, 2) == 0 ? size : 0);
    if (!repeats) extent = dimension->size * dimension->stride;
    if (random_in(0, 3) != 0) continue;
    start += (dimension->size - 1) * dimension->stride;
    dimension->stride = -dimension->stride;
  }
  array.starts = {static_cast<std::size_t>(start)};
  for (const Dimension& dimension : dimensions) {
    std::vector<std::size_t> starts;
    for (const std::size_t outer : array.starts)
      for (std::int64_t i = 0; i < dimension.size; ++i)
        starts.push_back(outer + static_cast<std::size_t>(i * dimension.stride));
    array.starts = starts;
  }
  array.memory.resize(static_cast<std::size_t>(extent));
  for (unsigned char& byte : array.memory)
    byte = static_cast<unsigned char>(random_bits());
  array.buffer.data = array.memory.data() + start;
  array.buffer.count = array.starts.size();
  array.buffer.dimensions = dimensions;
  return array;
}

void test_any_range_of_any_layout() {
  for (int round = 0; round < 3000; ++round) {
    Array array = random_array(/*may_repeat=*/true);
    const std::size_t size = size_of(array.buffer.dtype);
    const auto all = static_cast<std::int64_t>(array.buffer.count);
    const auto offset = static_cast<std::size_t>(random_in(0, all));
    const auto count =
        static_cast<std::size_t>(random_in(0, all - static_cast<std::int64_t>(offset)));
    std::vector<unsigned char> packed(count * size);  // exact: sanitizers see overruns
    pack(array.buffer, offset, count, packed.data());
    for (std::size_t i = 0; i < count; ++i)
      CHECK(std::memcmp(&packed[i * size], &array.memory[array.starts[offset + i]],
                        size) == 0);
  }
}

void test_unpack_writes_its_range_and_nothing_else() {
  for (int round = 0; round < 3000; ++round) {
    Array array = random_array(/*may_repeat=*/false);
    const std::size_t size = size_of(array.buffer.dtype);
    const auto all = static_cast<std::int64_t>(array.buffer.count);
    const auto offset = static_cast<std::size_t>(random_in(0, all));
    const auto count =
        static_cast<std::size_t>(random_in(0, all - static_cast<std::int64_t>(offset)));
    std::vector<unsigned char> packed(count * size);
    for (unsigned char& byte : packed) byte = static_cast<unsigned char>(random_bits());
    std::vector<unsigned char> expected = array.memory;
    for (std::size_t i = 0; i < count; ++i)
      std::memcpy(&expected[array.starts[offset + i]], &packed[i * size], size);
    unpack(packed.data(), array.buffer, offset, count);
    CHECK(array.memory == expected);
  }
}

void test_contiguous() {
  const std::vector<float> values = {0, 1, 2, 3, 4, 5};
  std::vector<float> copy = values;
  Buffer buffer{copy.data(), DType::Float32, copy.size(), {}};
  float two[2];
  pack(buffer, 3, 2, two);
  CHECK(two[0] == 3 && two[1] == 4);
  unpack(two, buffer, 0, 2);
  CHECK((copy == std::vector<float>{3, 4, 2, 3, 4, 5}));
}

// Past the caches, from and to odd addresses, next to others' bytes, onto itself.
void test_streaming() {
  for (const std::size_t bytes : {0, 5, 16, 40, 20'000})
    for (const std::size_t shift : {0, 1, 15}) {
      std::vector<unsigned char> from(bytes + 16), to(bytes + 32, 0xa5);
      for (unsigned char& byte : from) byte = static_cast<unsigned char>(random_bits());
      std::vector<unsigned char> expected = to;
      std::memcpy(expected.data() + shift, from.data() + 5, bytes);
      const Buffer input{from.data() + 5, DType::UInt8, bytes, {}};
      const Buffer output{to.data() + shift, DType::UInt8, bytes, {}};
      copy(input, output, 0, bytes, allhands::Stores::Streaming);
      CHECK(to == expected);
      const Buffer next{to.data() + shift + 1, DType::UInt8, bytes, {}};
      std::memmove(expected.data() + shift + 1, expected.data() + shift, bytes);
      copy(output, next, 0, bytes, allhands::Stores::Streaming);
      CHECK(to == expected);
    }
}

void test_empty_and_zero_dimensional() {
  Buffer empty{nullptr, DType::Float32, 0, {{3, 8}, {0, 4}}};
  pack(empty, 0, 0, nullptr);
  unpack(nullptr, empty, 0, 0);
  double value = 2.5, packed = 0;
  pack(Buffer{&value, DType::Float64, 1, {}}, 0, 1, &packed);
  CHECK(packed == 2.5);
}

}  // namespace

int main() {
  test_any_range_of_any_layout();
  test_unpack_writes_its_range_and_nothing_else();
  test_contiguous();
  test_streaming();
  test_empty_and_zero_dimensional();
}
