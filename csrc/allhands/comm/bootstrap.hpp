// How the ranks of a group on one host come to share a segment.
//
// Whichever rank comes first makes it and hands its descriptor out over an abstract
// Unix socket: binding the name decides who that is. So no rank waits for a particular
// other one, and two can exchange messages while the rest is elsewhere. Nobody talks to
// a store. Where the rank that made it is gone, dead or done with the group, the next
// one to come takes the segment from a rank that has it, and hands it out in its place.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include "allhands/base/shared_memory.hpp"
#include "allhands/base/wait.hpp"
#include "allhands/comm/segment_protocol.hpp"
#include "allhands/comm/segment_server.hpp"
#include "allhands/host/membership.hpp"

namespace allhands {

// The memory that a group's ranks share on one host, and who hands it out.
struct Segment {
  std::shared_ptr<SharedMemory> memory;
  std::unique_ptr<SegmentServer> server;  // on the rank that hands it out
};

// What a new segment needs before others see it.
using Prepare = std::function<void(SharedMemory&)>;

// Makes the group's segment of `bytes` and prepares it, or fetches it from the rank
// that did. Waits for nobody but that rank's thread. Throws Backend, Timeout or
// Interrupted; nothing has happened then, so a rank that lacked something may try
// again.
Segment open_segment(std::size_t bytes, const Prepare& prepare,
                     const Membership& membership, const Token& token,
                     const Limits& limits);
// The group's segment, if some rank has made it and still hands it out. Throws as
// open_segment.
std::optional<Segment> find_segment(const Membership& membership, const Token& token,
                                    const Limits& limits);

}  // namespace allhands
