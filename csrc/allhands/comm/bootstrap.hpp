// How the ranks of a group on one host come to share a segment.
//
// The rank that comes first makes the segment and hands out its file descriptor over an
// abstract Unix socket; the rank that succeeds in binding the name is the first. So no
// rank waits for a particular other one, and two ranks can exchange messages while the
// rest is elsewhere. No store is involved. If the rank that made the segment has died
// or is done with the group, the next rank to come takes the segment from a rank that
// has it, and hands it out instead.
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

// Prepares a new segment before others see it.
using Prepare = std::function<void(SharedMemory&)>;

// Makes the group's segment of `bytes` and prepares it, or fetches it from the rank
// that did. Waits only for that rank's thread. Throws Backend, Timeout, which names
// that rank if it is known, or Interrupted; in that case nothing has happened, so a
// rank that lacked some resource may try again.
Segment open_segment(std::size_t bytes, const Prepare& prepare,
                     const Membership& membership, const Token& token,
                     const Limits& limits);
// The group's segment, if some rank has made it and still hands it out. Throws like
// open_segment.
std::optional<Segment> find_segment(const Membership& membership, const Token& token,
                                    const Limits& limits);

}  // namespace allhands
