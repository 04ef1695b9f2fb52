// Identifies a process and its host: enough to tell that a peer is on this host, and
// whether it still runs (another process may have its pid by then).
#pragma once

#include <sched.h>

#include <cstdint>
#include <string>
#include <vector>

#include "allhands/host/host_name.hpp"

namespace allhands {

struct ProcessIdentity {
  HostName host;  // this boot of this machine, and its pid namespace
  int pid = 0;
  std::uint64_t start = 0;  // clock ticks since boot, /proc/<pid>/stat field 22
  // Where it listens for ranks of other hosts: "10.0.0.3:4471", or several separated by
  // commas; empty: nowhere.
  std::string endpoints = {};
};

ProcessIdentity this_process();

// False once the process has ended, even if it was not reaped yet. Only meaningful for
// a process of this host. A rank that is a thread of this process lives as long as
// that.
bool is_alive(const ProcessIdentity& process);
// Whether a signal or a debugger has stopped the process.
bool is_stopped(const ProcessIdentity& process);

// Whether there is a process of this number, with memory that this one may read. One
// system call, where is_alive() takes three and a text that the kernel writes.
bool has_readable_memory(int pid);

// The number of CPUs that this process may run on.
int num_cpus();

// The CPUs that at least one of these processes may run on, of those that are alive.
// All must be on this host.
cpu_set_t cpus_of(const std::vector<ProcessIdentity>& processes);
int num_cpus(const std::vector<ProcessIdentity>& processes);  // at least one

}  // namespace allhands
