// What a rank says of itself to the ranks of other hosts, and why.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "allhands/base/error.hpp"
#include "allhands/transport/transport.hpp"

namespace allhands {

struct Saying {
  // What encode() takes at most; longer texts and lists lose their ends.
  static constexpr std::size_t kMaxBytes = std::size_t{64} << 10;

  Presence how = Presence::Here;
  std::optional<Error> why = std::nullopt;  // of an abort

  std::vector<std::byte> encode() const;
  // Throws LinkError.
  static Saying decode(std::span<const std::byte> bytes);
};

}  // namespace allhands
