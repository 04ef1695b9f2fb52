// Groups on several hosts for tests: ranks are threads, those of a fake host share an
// arena of its own, and messages go through queues that know nothing of hosts.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "allhands/hosts/across_hosts.hpp"
#include "transports.hpp"

namespace allhands::testing {

// By rank, the number of its host.
using Hosting = std::vector<int>;

inline Membership membership_on(const Hosting& hosting, int rank) {
  std::vector<ProcessIdentity> processes;
  for (const int host : hosting) {
    processes.push_back(this_process());
    processes.back().host = processes.back().host.text() + "-" + std::to_string(host);
  }
  return {"test", rank, processes};
}

// The memory of the hosts' arenas.
class FakeHosts {
 public:
  explicit FakeHosts(const Hosting& hosting, std::size_t chunk_bytes = 0)
      : hosting_(hosting), network_(static_cast<int>(hosting.size())) {
    for (std::size_t rank = 0; rank < hosting.size(); ++rank)
      ranks_[hosting[rank]].push_back(static_cast<int>(rank));
    for (const auto& [host, ranks] : ranks_) {
      const int size = static_cast<int>(ranks.size());
      Tuning tuning = Tuning::for_ranks(size);
      if (chunk_bytes != 0) tuning.chunk_bytes = chunk_bytes;
      memories_[host] = SharedMemory::create(Layout(size).total_bytes());
      Arena::prepare(*memories_[host], size, tuning);
    }
  }

  int size() const { return static_cast<int>(hosting_.size()); }
  const Hosting& hosting() const { return hosting_; }
  int host_of(int rank) const { return hosting_[static_cast<std::size_t>(rank)]; }
  const std::vector<int>& ranks(int rank) const { return ranks_.at(host_of(rank)); }
  std::shared_ptr<SharedMemory> memory(int rank) const {
    return memories_.at(host_of(rank));
  }
  Loopback& network() { return network_; }

 private:
  const Hosting hosting_;
  Loopback network_;
  std::map<int, std::vector<int>> ranks_;
  std::map<int, std::shared_ptr<SharedMemory>> memories_;
};

// One rank of such a group.
class HostRank {
 public:
  HostRank(FakeHosts& fake, int rank)
      : membership_(membership_on(fake.hosting(), rank)),
        arena_(fake.memory(rank), membership_, fake.ranks(rank), {}),
        engine_(fake.network().transport(rank), membership_,
                Tuning::for_ranks(fake.size()),
                {.failure = [this] { return arena_.told_failure(); }}),
        across_(membership_, arena_, engine_) {}

  int rank() const { return membership_.rank; }
  int size() const { return membership_.size(); }
  const Hosts& hosts() const { return across_.hosts(); }
  Arena& arena() { return arena_; }
  ProgressEngine& engine() { return engine_; }

  void leave() {
    arena_.leave();
    engine_.leave(Error(ErrorKind::Backend, "it left"));
  }

  // Checks it and runs it as the group's next.
  void run(const Operation& operation, const Limits& limits = soon()) {
    operation.collective->check(operation, rank(), size());
    across_.run(++sequence_, operation, limits);
  }

 private:
  const Membership membership_;
  Arena arena_;
  ProgressEngine engine_;
  AcrossHosts across_;
  std::uint64_t sequence_ = 0;
};

// Runs body(rank) as every rank of a fresh group.
template <class Body>
void run_on_hosts(const Hosting& hosting, std::size_t chunk_bytes, Body body) {
  FakeHosts fake(hosting, chunk_bytes);
  run_ranks(fake.size(), [&](int number) {
    HostRank rank(fake, number);
    body(rank);
    rank.engine().flush(soon());
  });
}

template <class Body>
void run_on_hosts(const Hosting& hosting, Body body) {
  run_on_hosts(hosting, 0, body);
}

}  // namespace allhands::testing
