// What tests do to the sockets of their own process.
#pragma once

#include <dirent.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
#include <vector>

#include "check.hpp"

namespace allhands::testing {

// The sockets of this process between its ports, both ends, whatever their state.
inline std::vector<int> connected_sockets() {
  std::vector<int> found;
  DIR* const folder = ::opendir("/proc/self/fd");
  CHECK(folder != nullptr);
  while (const dirent* const entry = ::readdir(folder)) {
    sockaddr_in there = {};
    socklen_t size = sizeof(there);
    const int fd = std::atoi(entry->d_name);
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&there), &size) == 0 &&
        there.sin_family == AF_INET)
      found.push_back(fd);
  }
  ::closedir(folder);
  return found;
}

// Nothing that comes for this socket gets to it.
inline void deafen(int fd) {
  sock_filter drop = {BPF_RET | BPF_K, 0, 0, 0};
  const sock_fprog program = {1, &drop};
  CHECK(::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0);
}

}  // namespace allhands::testing
