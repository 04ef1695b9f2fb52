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

// Any number, in a context.
struct Tag {
  Tag(std::int64_t number, Context context = Context::Program)  // NOLINT: it is one
      : number(number), context(context) {}

  bool operator==(const Tag&) const = default;

  std::int64_t number;
  Context context;
};

}  // namespace allhands
