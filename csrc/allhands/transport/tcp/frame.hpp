// What passes over a connection once both sides have proved themselves: frames, each a
// head and `length` bytes behind it, filled up to kFrameAlign.
//
// A frame belongs to a channel, which is one group's. Whatever its kind, it also says
// how much the sender has popped and settled of what came over the channel.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace allhands {

static_assert(std::endian::native == std::endian::little, "heads go as they are");

// What a frame says.
enum class FrameKind : std::uint32_t {
  Ready,     // the first over each socket: it takes the connection as made; `popped` is
             // how much was received before, in bytes, `settled` the socket's number
  Beat,      // this process lives
  Join,      // the rank uses the channel; one that has left says so again
  Room,      // nothing but what the head says
  Record,    // of a Link
  Bulk,      // a record whose body may land, see Landings
  Presence,  // what the rank says of itself as it goes, see Saying
};

// What is in front of each frame.
struct FrameHead {
  std::uint32_t length;
  FrameKind kind;
  std::uint64_t channel;
  std::uint64_t number;   // of the frame on its connection; Ready is 0
  std::uint64_t popped;   // as Channel::cost() counts
  std::uint64_t settled;  // see Link::settle()
  std::uint64_t key;      // of Bulk: see Landings
};
static_assert(sizeof(FrameHead) == 48);

inline constexpr std::size_t kFrameAlign = 8;

// What `length` bytes take behind a head.
inline std::size_t padded(std::size_t length) {
  return (length + kFrameAlign - 1) & ~(kFrameAlign - 1);
}

}  // namespace allhands
