// Which processes are in a group, as this rank sees it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "allhands/base/rank_text.hpp"
#include "allhands/host/process.hpp"

namespace allhands {

// The processes of a group by rank, which all copies share.
class Peers {
 public:
  Peers() = default;
  Peers(std::vector<ProcessIdentity> peers)  // NOLINT: it is one
      : peers_(std::make_shared<const std::vector<ProcessIdentity>>(std::move(peers))) {
  }

  const std::vector<ProcessIdentity>& all() const { return *peers_; }

 private:
  std::shared_ptr<const std::vector<ProcessIdentity>> peers_ =
      std::make_shared<const std::vector<ProcessIdentity>>();
};

// Which processes are in a group, as one rank sees it.
struct Membership {
  std::string name;  // the group's name, for messages
  int rank = 0;      // this rank
  Peers peers;       // including this one
  // " (ranks 1, 3 of the world)" if the ranks have other numbers there; for messages.
  std::string in_world = {};

  // "'dp' (ranks 1, 3 of the world)", for errors that name ranks of the group.
  std::string quoted() const { return "'" + name + "'" + in_world; }
  int size() const { return static_cast<int>(peers.all().size()); }
  const ProcessIdentity& process(int peer) const {
    return peers.all()[static_cast<std::size_t>(peer)];
  }
  // "rank 3 (pid 4711)"
  std::string describe(int peer) const {
    return "rank " + std::to_string(peer) + " (pid " +
           std::to_string(process(peer).pid) + ")";
  }
  // The same for each; for many ranks "ranks 0-38, 41 (40 of 256)".
  std::string describe(const std::vector<int>& some) const {
    const auto number_of = [](int peer) { return peer; };
    return tell_of(
        some, size(), number_of, [this](int peer) { return describe(peer); },
        [](int, bool) { return std::string(); });
  }
};

// The members of a group that are on this rank's host, by local rank.
inline Membership on_this_host(const Membership& group) {
  Membership local = {group.name, 0, {}};
  std::vector<ProcessIdentity> processes;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (group.process(rank).host != group.process(group.rank).host) continue;
    if (rank == group.rank) local.rank = static_cast<int>(processes.size());
    processes.push_back(group.process(rank));
  }
  if (processes.size() == group.peers.all().size()) return group;
  local.peers = std::move(processes);
  return local;
}

}  // namespace allhands
