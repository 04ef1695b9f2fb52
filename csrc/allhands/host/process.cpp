#include "allhands/host/process.hpp"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "allhands/base/error.hpp"
#include "allhands/base/fd.hpp"

namespace allhands {
namespace {

std::string read_file(const std::string& path) {
  Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.is_open()) return {};
  char text[4096];
  const ssize_t length = read(fd.get(), text, sizeof(text));
  return length > 0 ? std::string(text, static_cast<std::size_t>(length))
                    : std::string();
}

struct Stat {
  char state = 0;  // 0: there is no such process, or it cannot be read
  std::uint64_t start = 0;
};

// proc(5): "pid (comm) state ppid ..."; comm may contain anything, so fields are
// counted from its last ')'.
Stat read_stat(int pid) {
  const std::string text = read_file("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t end = text.rfind(')');
  if (end == std::string::npos || end + 2 >= text.size()) return {};
  Stat stat;
  stat.state = text[end + 2];
  std::size_t at = end + 2;
  for (int field = 3; field < 22; ++field) {
    at = text.find(' ', at);
    if (at == std::string::npos) return {};
    ++at;
  }
  stat.start = std::strtoull(text.c_str() + at, nullptr, 10);
  return stat;
}

bool is_there(int pid) { return kill(pid, 0) == 0 || errno != ESRCH; }

// The error of reading the first byte of a process's memory, where nothing is.
int error_of_reading(int pid) {
  char byte;
  const iovec here = {&byte, 1};
  const iovec there = {nullptr, 1};
  return process_vm_readv(pid, &here, 1, &there, 1, 0) < 0 ? errno : EFAULT;
}

// A process that has ended but was not reaped exists without memory. If the system does
// not let this process look, the other one counts as having memory.
bool has_memory(int pid) { return error_of_reading(pid) != ESRCH; }

std::string pid_namespace() {
  char target[64] = {};
  const ssize_t length = readlink("/proc/self/ns/pid", target, sizeof(target) - 1);
  return length > 0 ? std::string(target) : std::string("pid:[unknown]");
}

}  // namespace

ProcessIdentity this_process() {
  std::string boot = read_file("/proc/sys/kernel/random/boot_id");
  while (!boot.empty() && boot.back() == '\n') boot.pop_back();
  const int pid = getpid();
  return {boot + "/" + pid_namespace(), pid, read_stat(pid).start, {}};
}

bool is_alive(const ProcessIdentity& process) {
  const Stat stat = read_stat(process.pid);
  // /proc cannot be read if this process has no descriptor left.
  if (stat.state == 0) return is_there(process.pid) && has_memory(process.pid);
  const bool ended = stat.state == 'Z' || stat.state == 'X';
  return !ended && stat.start == process.start;
}

bool has_readable_memory(int pid) { return error_of_reading(pid) == EFAULT; }

bool is_stopped(const ProcessIdentity& process) {
  const char state = read_stat(process.pid).state;
  return state == 'T' || state == 't';
}

int num_cpus() { return num_cpus({{.host = {}, .pid = 0}}); }

cpu_set_t cpus_of(const std::vector<ProcessIdentity>& processes) {
  cpu_set_t all, one;
  CPU_ZERO(&all);
  for (const ProcessIdentity& process : processes)
    if (sched_getaffinity(process.pid, sizeof(one), &one) == 0)
      CPU_OR(&all, &all, &one);
  return all;
}

int num_cpus(const std::vector<ProcessIdentity>& processes) {
  const cpu_set_t all = cpus_of(processes);
  return std::max(CPU_COUNT(&all), 1);
}

}  // namespace allhands
