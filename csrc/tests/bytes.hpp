// Bytes that tests write and look for, in pieces by functions of the C library: under
// sanitizers a loop over single bytes takes a hundred times as long.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

namespace allhands::testing {

// Many bytes that count up from `seed`, and then from 0 again and again.
class Pattern {
 public:
  explicit Pattern(std::size_t seed) : begin_(kBytes.data() + seed % kPeriod) {}

  void fill(std::span<std::byte> data) const {
    each_piece(data, [&](std::span<std::byte> piece) {
      std::memcpy(piece.data(), begin_, piece.size());
      return true;
    });
  }
  bool is_in(std::span<const std::byte> data) const {
    return each_piece(data, [&](std::span<const std::byte> piece) {
      return std::memcmp(piece.data(), begin_, piece.size()) == 0;
    });
  }

 private:
  static constexpr std::size_t kPeriod = 256;
  static constexpr std::size_t kPiece = 16 * kPeriod;
  static constexpr std::array<std::byte, kPeriod + kPiece> kBytes = [] {
    std::array<std::byte, kPeriod + kPiece> bytes = {};
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(i % kPeriod);
    return bytes;
  }();

  template <class Byte, class Do>
  static bool each_piece(std::span<Byte> data, Do act) {
    for (; !data.empty(); data = data.subspan(std::min(kPiece, data.size())))
      if (!act(data.first(std::min(kPiece, data.size())))) return false;
    return true;
  }

  const std::byte* const begin_;
};

inline void fill_all(std::span<std::byte> data, std::byte value) {
  std::memset(data.data(), static_cast<int>(value), data.size());
}

inline bool are_all(std::span<const std::byte> data, std::byte value) {
  return data.empty() || (data[0] == value &&
                          std::memcmp(&data[0], &data[0] + 1, data.size() - 1) == 0);
}

}  // namespace allhands::testing
