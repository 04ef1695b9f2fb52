// Which process on which host: enough to tell that a peer is on this host, and whether
// it still runs (its pid may be in use by another process by then).
#pragma once

#include <sched.h>

#include <cstdint>
#include <string>
#include <vector>

namespace allhands {

struct ProcessIdentity {
  std::string host;  // this boot of this machine and its pid namespace
  int pid = 0;
  std::uint64_t start = 0;  // clock ticks since boot, /proc/<pid>/stat field 22
  // Where it listens for ranks of other hosts: "10.0.0.3:4471", or several between
  // commas; empty: nowhere.
  std::string endpoints = {};
};

ProcessIdentity this_process();

// False once the process has ended, also while nobody has reaped it yet. Meaningful
// only for a process of this host. Ranks that are threads of this one live as long.
bool is_alive(const ProcessIdentity& process);

// CPUs that this process may run on.
int num_cpus();

// CPUs that at least one of these may run on, of those that live; all on this host.
cpu_set_t cpus_of(const std::vector<ProcessIdentity>& processes);
int num_cpus(const std::vector<ProcessIdentity>& processes);  // one at least

}  // namespace allhands
