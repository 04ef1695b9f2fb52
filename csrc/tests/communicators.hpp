// Whole groups for tests: a Communicator for each rank, which are threads.
#pragma once

#include <algorithm>
#include <cstring>

#include "allhands/comm/communicator.hpp"
#include "loopback.hpp"
#include "ranks.hpp"

namespace allhands::testing {

inline Token fresh_token() {
  static int counter = 0;  // runs in the main thread only
  Token token = {};
  const ProcessIdentity self = this_process();
  ++counter;
  std::memcpy(token.data(), &self.pid, sizeof(self.pid));
  std::memcpy(token.data() + 4, &counter, sizeof(counter));
  token[31] = std::byte{1};
  return token;
}

// Runs body(comm) as every rank of a fresh group.
template <class Body>
void run_communicators(int size, Body body) {
  const Token token = fresh_token();
  run_ranks(size, [&](int rank) {
    Communicator comm(membership(rank, size), token,
                      [size] { return Tuning::for_ranks(size); });
    body(comm);
    comm.close(soon());
  });
}

// Hosts that are parts of this process: each rank's, by number. What is between them is
// a Loopback.
using HostNumbers = std::vector<int>;

inline Membership membership_on(const HostNumbers& hosts, int rank) {
  const int size = static_cast<int>(hosts.size());
  std::vector<ProcessIdentity> processes = membership(rank, size).peers.all();
  for (std::size_t i = 0; i < processes.size(); ++i)
    processes[i].host = processes[i].host.text() + " part " + std::to_string(hosts[i]);
  return {"on hosts", rank, std::move(processes)};
}

// Runs body(comm) as every rank of a fresh group on such hosts.
template <class Body>
void run_communicators_on(const HostNumbers& hosts, Body body) {
  const Token token = fresh_token();
  const int size = static_cast<int>(hosts.size());
  Loopback between(size);
  run_ranks(size, [&](int rank) {
    const auto reach = [&](const Membership&, const Token&, const Tuning&,
                           std::function<void()> wake) {
      between.rank(rank).set_wake(std::move(wake));
      return between.transport(rank);
    };
    const auto num_local =
        std::count(hosts.begin(), hosts.end(), hosts[static_cast<std::size_t>(rank)]);
    Communicator comm(
        membership_on(hosts, rank), token,
        [=] { return Tuning::for_ranks(static_cast<int>(num_local)); }, {},
        FlightRecorder::kLength, reach);
    body(comm);
    comm.close(soon());
  });
}

// How a thread waits that has no limit of its own: it carries out what it waits for.
inline Limits without_limit(Interrupt interrupt = [] { return false; }) {
  return {Deadline::never(), interrupt};
}

}  // namespace allhands::testing
