// Bytes that ranks tell each other, and lists of bytes in one row.
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

// Adds a list at the end of `bytes`: the lengths, then the bytes of each.
void append_list(Bytes& bytes, const std::vector<BytesView>& list);

// How many bytes append_list() adds.
std::size_t bytes_of_list(const std::vector<BytesView>& list);

// Splits what append_list() has added, within the same memory. Returns none if `bytes`
// is not a list of `length` parts.
std::optional<std::vector<BytesView>> parts_of(BytesView bytes, std::size_t length);

}  // namespace allhands
