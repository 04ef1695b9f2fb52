// One operation of a group on several hosts, as this rank carries it out: what it uses,
// its number and its limits.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "allhands/arena/arena.hpp"
#include "allhands/base/wait.hpp"
#include "allhands/engine/progress_engine.hpp"
#include "allhands/hosts/hosts.hpp"
#include "allhands/hosts/kept_memory.hpp"

namespace allhands {

struct Crossing {
  const Membership& group;
  const Hosts& hosts;
  Arena& arena;            // of the ranks of this host
  ProgressEngine& engine;  // to all ranks
  KeptMemory& memory;      // for parts of large operations
  std::uint64_t sequence;
  Limits limits;

  // Limits for a rank that waits for other hosts. They are later than those of ranks
  // that wait within their hosts, as these know better who is missing, and tell.
  Limits wire_limits() const { return put_off(std::chrono::milliseconds(500)); }
  // Limits for a rank that waits for a rank of its host that waits for other hosts.
  Limits patient_limits() const { return put_off(std::chrono::milliseconds(1000)); }

  // The tag of the operation's messages.
  Tag tag() const {
    return {static_cast<std::int64_t>(sequence), Context::Collectives};
  }
  // "all_reduce(float32, count 10, SUM) #17 on group 'dp': rank 0 (this process): "
  std::string subject() const {
    return arena.describe_call() + ": rank " + std::to_string(group.rank) +
           " (this process): ";
  }

 private:
  Limits put_off(Deadline::Duration by) const {
    return {limits.deadline.put_off(by), limits.interrupt, limits.stop};
  }
};

}  // namespace allhands
