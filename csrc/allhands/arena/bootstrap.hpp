// How the ranks of a group on one host come to share a segment.
//
// The first rank makes it and hands its descriptor out over an abstract Unix socket
// (SCM_RIGHTS). The socket is named by one half of the group's token, the other half is
// the proof: abstract names are visible to every user of the host, so each side also
// checks that the other runs under its own user (SO_PEERCRED). Nobody talks to a store.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "allhands/arena/limits.hpp"
#include "allhands/arena/membership.hpp"
#include "allhands/base/fd.hpp"
#include "allhands/base/shared_memory.hpp"

namespace allhands {

// Known to the ranks of one group only, different for every group of every job.
using Token = std::array<std::byte, 32>;

// Hands the segment out until every other rank has it. Runs a thread of its own, so the
// first rank takes part in the first operation like any other, and a rank that comes
// late still learns what happened. Stops when destroyed.
class SegmentServer {
 public:
  SegmentServer(const SharedMemory& memory, const Membership& membership,
                const Token& token);
  SegmentServer(const SegmentServer&) = delete;
  SegmentServer& operator=(const SegmentServer&) = delete;
  ~SegmentServer();

 private:
  void serve();
  void accept_one();
  // False: done with this connection.
  void answer(Fd& connection);

  int segment_;
  Token token_;
  Fd listener_;
  Fd stop_;
  std::vector<Fd> connections_;
  std::vector<bool> served_;
  int num_waiting_;
  std::thread thread_;
};

// Fetches the segment from the first rank, waiting until that begins its first
// operation. Throws Timeout or RankFailed naming it, or Interrupted.
std::shared_ptr<SharedMemory> fetch_segment(const Membership& membership,
                                            const Token& token, const Limits& limits);

}  // namespace allhands
