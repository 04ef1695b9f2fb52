// How the ranks of a group on one host come to share a segment.
//
// Whichever rank comes first makes it and hands its descriptor out over an abstract
// Unix socket (SCM_RIGHTS): binding the name decides who that is. So no rank waits for
// a particular other one, and two can exchange messages while the rest is elsewhere.
// The socket is named by one half of the group's token, the other half is the proof:
// abstract names are visible to every user of the host, so each side also checks that
// the other runs under its own user (SO_PEERCRED). Nobody talks to a store. Where the
// rank that made it has died, the next one to come takes it from one that has it, and
// hands it out in its place.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "allhands/base/fd.hpp"
#include "allhands/base/membership.hpp"
#include "allhands/base/shared_memory.hpp"
#include "allhands/base/wait.hpp"

namespace allhands {

// Known to the ranks of one group only, different for every group of every job.
using Token = std::array<std::byte, 32>;

// Hands a segment out until every other rank has it, in a thread of its own. Destroying
// it leaves that thread a few seconds more: a rank that comes late then still learns
// from the segment who was there and has left, or what broke the group.
class SegmentServer {
 public:
  // `listener` is bound and listens.
  SegmentServer(Fd listener, const SharedMemory& memory, int size, const Token& token);
  SegmentServer(const SegmentServer&) = delete;
  SegmentServer& operator=(const SegmentServer&) = delete;
  ~SegmentServer();

 private:
  class Service;

  Fd no_more_;  // closing it tells the thread
  std::shared_ptr<Service> service_;
  std::thread thread_;
};

struct Segment {
  std::shared_ptr<SharedMemory> memory;
  std::unique_ptr<SegmentServer> server;  // on the rank that made it
};

// What a new segment needs before others see it.
using Prepare = std::function<void(SharedMemory&)>;

// Makes the group's segment of `bytes` and prepares it, or fetches it from the rank
// that did. Waits for nobody but that rank's thread. Throws Backend, Timeout or
// Interrupted.
Segment open_segment(std::size_t bytes, const Prepare& prepare,
                     const Membership& membership, const Token& token,
                     const Limits& limits);
// The group's segment, if some rank has made it and still hands it out. Throws as
// open_segment.
std::optional<Segment> find_segment(const Membership& membership, const Token& token,
                                    const Limits& limits);

}  // namespace allhands
