// Hands a group's segment out until every other rank has it, in a thread of its own.
#pragma once

#include <chrono>
#include <memory>
#include <thread>

#include "allhands/base/fd.hpp"
#include "allhands/base/shared_memory.hpp"
#include "allhands/comm/segment_protocol.hpp"
#include "allhands/host/membership.hpp"

namespace allhands {

// Hands the segment out. Destroying it leaves its thread a few seconds more: a rank
// that comes late then still learns from the segment who was there and has left, or
// what broke the group. It ends as soon as no rank is left that may come.
class SegmentServer {
 public:
  // How long a connection may stay silent, and how many may be silent at a time; the
  // oldest is dropped for the next.
  static constexpr std::chrono::seconds kSilence{5};
  static constexpr std::size_t kMaxStrangers = 64;

  // `listener` is bound and listens; `membership` is of the ranks of this host.
  SegmentServer(Fd listener, const SharedMemory& memory, const Membership& membership,
                const Token& token);
  SegmentServer(const SegmentServer&) = delete;
  SegmentServer& operator=(const SegmentServer&) = delete;
  ~SegmentServer();

 private:
  class Service;

  std::shared_ptr<Service> service_;
  std::thread thread_;
};

}  // namespace allhands
