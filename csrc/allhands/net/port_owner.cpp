// /proc/net/tcp{,6} gives the inode of the listening socket, and /proc/<pid>/fd the
// process that has it open.
#include "allhands/net/port_owner.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

namespace allhands {
namespace {

namespace fs = std::filesystem;

constexpr const char* kListen = "0A";  // include/net/tcp_states.h, in hexadecimal

// The column names of /proc/net/tcp: sl local_address rem_address st tx_queue:rx_queue
// tr:tm->when retrnsmt uid timeout inode
std::string inode_in_line(const std::string& line, std::uint16_t port) {
  std::istringstream words(line);
  std::string slot, local, remote, state, queues, timer, retransmits, uid, timeout;
  std::string inode;
  words >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >>
      timeout >> inode;
  const std::size_t colon = local.rfind(':');
  if (state != kListen || colon == std::string::npos) return "";
  return std::strtoul(local.c_str() + colon + 1, nullptr, 16) == port ? inode : "";
}

std::string listening_inode(const char* table, std::uint16_t port) {
  std::ifstream file(table);
  std::string line;
  std::getline(file, line);  // the heading
  while (std::getline(file, line))
    if (std::string inode = inode_in_line(line, port); !inode.empty()) return inode;
  return "";
}

// Calls visit(entry) for each entry until that returns true. Entries that vanish
// meanwhile, or that this process may not see, are skipped.
template <typename Visit>
bool any_entry(const fs::path& folder, const Visit& visit) {
  std::error_code code;
  fs::directory_iterator entry(folder, code);
  for (; !code && entry != fs::directory_iterator(); entry.increment(code))
    if (visit(entry->path())) return true;
  return false;
}

bool has_open(const fs::path& process, const std::string& target) {
  return any_entry(process / "fd", [&target](const fs::path& fd) {
    std::error_code gone;
    return fs::read_symlink(fd, gone) == target;
  });
}

std::string command_of(const fs::path& process) {
  std::ifstream file(process / "cmdline", std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  std::replace(text.begin(), text.end(), '\0', ' ');
  while (!text.empty() && text.back() == ' ') text.pop_back();
  constexpr std::size_t kShown = 120;
  return text.size() > kShown ? text.substr(0, kShown) + "..." : text;
}

bool is_process(const fs::path& entry) {
  const std::string name = entry.filename();
  return std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

}  // namespace

std::string describe_port_owner(std::uint16_t port) {
  std::string inode = listening_inode("/proc/net/tcp", port);
  if (inode.empty()) inode = listening_inode("/proc/net/tcp6", port);
  if (inode.empty()) return "";
  const std::string target = "socket:[" + inode + "]";
  std::string owner;
  any_entry("/proc", [&](const fs::path& entry) {
    if (!is_process(entry) || !has_open(entry, target)) return false;
    owner = "process " + entry.filename().string() + " (" + command_of(entry) + ")";
    return true;
  });
  return owner;
}

}  // namespace allhands
