// Bytes that ranks tell each other, and lists of bytes joined into one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace allhands {

using Bytes = std::vector<std::byte>;
using BytesView = std::span<const std::byte>;

// The most bytes that a rank or host tells in an operation.
inline constexpr std::uint64_t kMostTold = std::uint64_t{1} << 32;

// Adds `values` at the end of `bytes`.
template <class T>
void append(Bytes& bytes, const T* values, std::size_t count) {
  const auto view = std::as_bytes(std::span(values, count));
  bytes.insert(bytes.end(), view.begin(), view.end());
}

// Joins a list into one: their lengths, then their bytes.
Bytes joined(const std::vector<Bytes>& list);

// Splits joined bytes into parts, within the same memory. Returns none if `bytes` is
// not a list of `length` parts.
std::optional<std::vector<BytesView>> parts_of(BytesView bytes, std::size_t length);

}  // namespace allhands
