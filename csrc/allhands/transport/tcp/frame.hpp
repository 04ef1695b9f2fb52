// What passes over a connection once both sides have proved themselves: frames, each
// with a head and `length` bytes behind it, padded to kFrameAlign.
//
// A frame belongs to a channel, which is one group's. Whatever its kind, a frame also
// says how much the sender has popped and settled of what came over the channel.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "allhands/transport/landings.hpp"

namespace allhands {

static_assert(std::endian::native == std::endian::little, "heads go as they are");

// The kind of a frame.
enum class FrameKind : std::uint32_t {
  // The first frame over each socket, which completes the handshake. `popped` is the
  // number of bytes received before, `settled` the socket's number.
  Ready,
  Beat,      // this process is alive
  Join,      // the rank uses the channel; a peer that has left says so again
  Room,      // only what the head says
  LaneEnd,   // the lane is given up; bodies that went by it in vain follow, see Lane
  Record,    // a record of a Link
  Bulk,      // a record whose body may land, see Landings
  Lane,      // such a record whose body comes by UCX, see Announcement
  Apart,     // such a record whose body comes over a strand, see Announcement
  Presence,  // the rank's last words as it leaves, see Saying
  // Over a strand: the body of an Apart frame's record. Over the connection: that of a
  // Lane frame's record, which UCX may have lost.
  Body,
};

// The head in front of each frame.
struct FrameHead {
  std::uint32_t length;
  FrameKind kind;
  std::uint64_t channel;
  std::uint64_t number;   // the frame's number on its connection; Ready is 0
  std::uint64_t popped;   // as Channel::cost() counts
  std::uint64_t settled;  // see Link::settle()
  // In Bulk, Lane and Apart frames: see Landings. In Body frames: the body's number.
  std::uint64_t key;
};
static_assert(sizeof(FrameHead) == 48);

// What a Lane or Apart frame holds of a record.
struct Announcement {
  std::array<std::byte, LandingRecord::kHeadBytes> head;
  std::uint64_t body_bytes;
  std::uint64_t number;  // of the bodies that go this way in this direction, from 0
};
static_assert(sizeof(Announcement) == 48);

inline constexpr std::size_t kFrameAlign = 8;

// The bytes that a body of `length` bytes takes behind a head.
constexpr std::size_t padded(std::size_t length) {
  return (length + kFrameAlign - 1) & ~(kFrameAlign - 1);
}

}  // namespace allhands
