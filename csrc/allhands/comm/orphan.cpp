// /proc/<pid>/fd shows what a process has open, memory among it, and lets its user open
// that too.
#include "allhands/comm/orphan.hpp"

#include <fcntl.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace allhands {
namespace {

namespace fs = std::filesystem;

// What vanishes meanwhile, or may not be looked at, is passed over.
Fd open_from(int pid, const fs::path& target) {
  std::error_code code;
  fs::directory_iterator entry("/proc/" + std::to_string(pid) + "/fd", code);
  for (; !code && entry != fs::directory_iterator(); entry.increment(code)) {
    std::error_code gone;
    if (fs::read_symlink(entry->path(), gone) == target)
      return Fd(open(entry->path().c_str(), O_RDWR | O_CLOEXEC));
  }
  return Fd();
}

}  // namespace

Fd find_orphan(const Membership& membership, const std::string& name) {
  std::vector<int> living;
  for (int peer = 0; peer < membership.size(); ++peer)
    if (peer != membership.rank && is_alive(membership.process(peer)))
      living.push_back(membership.peers[static_cast<std::size_t>(peer)].pid);
  const bool has_anybody_died = living.size() + 1 < membership.peers.size();
  if (!has_anybody_died) return Fd();
  for (const int pid : living)
    if (Fd found = open_from(pid, "/memfd:" + name + " (deleted)"); found.is_open())
      return found;
  return Fd();
}

}  // namespace allhands
