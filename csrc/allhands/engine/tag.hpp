// What a message is matched by, beside its source.
#pragma once

#include <cstdint>

namespace allhands {

// Messages of one context never match receives of another. Ranks write these numbers to
// each other.
enum class Context : std::uint32_t {
  Program,      // messages of the program
  Collectives,  // messages that collectives between hosts consist of
};
inline constexpr std::uint32_t kNumContexts = 2;

// A receive with kAnyTag takes any message of the program. Tags of programs go from 0
// to kNumProgramTags - 1; the others are this package's own.
inline constexpr std::int64_t kAnyTag = 1 - (std::int64_t{1} << 31);
inline constexpr std::int64_t kNumProgramTags = std::int64_t{1} << 31;

// A number in a context.
struct Tag {
  Tag(std::int64_t number, Context context = Context::Program)  // NOLINT: it is one
      : number(number), context(context) {}

  bool operator==(const Tag&) const = default;

  // Whether a receive with this tag may get a message with the tag `other`.
  bool accepts(Tag other) const {
    if (*this == other) return true;
    return number == kAnyTag && context == other.context && other.number >= 0 &&
           other.number < kNumProgramTags;
  }

  std::int64_t number;
  Context context;
};

}  // namespace allhands
