// Bytes that ranks tell each other, and lists of such as one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace allhands {

using Bytes = std::vector<std::byte>;
using BytesView = std::span<const std::byte>;

// No rank or host tells more in an operation.
inline constexpr std::uint64_t kMostTold = std::uint64_t{1} << 32;

// Behind what is there.
template <class T>
void append(Bytes& bytes, const T* values, std::size_t count) {
  const auto view = std::as_bytes(std::span(values, count));
  bytes.insert(bytes.end(), view.begin(), view.end());
}

// A list as one: their lengths, then all of them.
Bytes joined(const std::vector<Bytes>& list);

// The way back, within the same memory; none where that is no list of so many.
std::optional<std::vector<BytesView>> parts_of(BytesView bytes, std::size_t length);

}  // namespace allhands
