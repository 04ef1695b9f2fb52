// What a rank tells the ranks of other hosts about itself, and why.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "allhands/base/error.hpp"
#include "allhands/transport/transport.hpp"

namespace allhands {

struct Saying {
  // The most bytes that encode() returns; it cuts the ends of longer texts and lists.
  static constexpr std::size_t kMaxBytes = std::size_t{64} << 10;

  Presence how = Presence::Here;
  std::optional<Error> why = std::nullopt;  // of an abort

  std::vector<std::byte> encode() const;
  // Throws LinkError.
  static Saying decode(std::span<const std::byte> bytes);
};

}  // namespace allhands
