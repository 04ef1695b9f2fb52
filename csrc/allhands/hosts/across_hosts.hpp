// Collectives of a group whose ranks are on several hosts, as one rank carries them
// out:
// through the arena of its host's ranks, and by messages between hosts.
//
// All ranks agree on an operation before any output is written. So all of them find a
// mismatch at the same point, and the group goes on. Any other error of an operation
// breaks the group, and this rank tells the ranks that share its arena, and all others.
//
// Thread rule: as Arena's.
#pragma once

#include <cstdint>

#include "allhands/arena/arena.hpp"
#include "allhands/arena/operation.hpp"
#include "allhands/engine/progress_engine.hpp"
#include "allhands/hosts/crossing.hpp"
#include "allhands/hosts/hosts.hpp"
#include "allhands/hosts/kept_memory.hpp"

namespace allhands {

class AcrossHosts {
 public:
  // `arena` serves the ranks of `group` on this rank's host; `engine` reaches all
  // ranks. Both must outlive this object.
  AcrossHosts(const Membership& group, Arena& arena, ProgressEngine& engine)
      : group_(group), hosts_(group), arena_(arena), engine_(engine) {
    arena_.watch([this] { return engine_.abortion(); });
  }
  AcrossHosts(const AcrossHosts&) = delete;
  AcrossHosts& operator=(const AcrossHosts&) = delete;

  const Hosts& hosts() const { return hosts_; }

  // Runs a checked operation as the group's operation number `sequence`. Throws
  // Unsupported for what works only within one host, Mismatch if the ranks called
  // different things, and Timeout, RankFailed, Interrupted or Backend, which break the
  // group.
  void run(std::uint64_t sequence, const Operation& operation, const Limits& limits);

 private:
  void break_off(const Error& error);
  Error for_others(const Error& error) const;

  const Membership group_;
  const Hosts hosts_;
  Arena& arena_;
  ProgressEngine& engine_;
  KeptMemory memory_;
};

}  // namespace allhands
