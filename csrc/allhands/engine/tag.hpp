// What a message is matched by, beside its source.
#pragma once

#include <cstdint>

namespace allhands {

// Messages of one context never match receives of another. The numbers are in what
// ranks write to each other.
enum class Context : std::uint32_t {
  Program,      // what a program sends and receives
  Collectives,  // what collectives between hosts consist of
};
inline constexpr std::uint32_t kNumContexts = 2;

// Of what a receive wants: the tag of any message of a program. Programs have the tags
// from 0 on, below kNumProgramTags; others are this package's own.
inline constexpr std::int64_t kAnyTag = 1 - (std::int64_t{1} << 31);
inline constexpr std::int64_t kNumProgramTags = std::int64_t{1} << 31;

// Any number, in a context.
struct Tag {
  Tag(std::int64_t number, Context context = Context::Program)  // NOLINT: it is one
      : number(number), context(context) {}

  bool operator==(const Tag&) const = default;

  // Whether a receive for this one may get a message of the tag `other`.
  bool accepts(Tag other) const {
    if (*this == other) return true;
    return number == kAnyTag && context == other.context && other.number >= 0 &&
           other.number < kNumProgramTags;
  }

  std::int64_t number;
  Context context;
};

}  // namespace allhands
