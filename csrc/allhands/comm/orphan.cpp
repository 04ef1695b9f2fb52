// /proc/<pid>/fd shows what a process has open, memory among it, and lets its user open
// that too.
#include "allhands/comm/orphan.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <string>
#include <string_view>

#include "allhands/base/error.hpp"

namespace allhands {
namespace {

using Folder = std::unique_ptr<DIR, int (*)(DIR*)>;

// Entries that vanish meanwhile or may not be opened are skipped. But none is skipped
// for want of descriptors, since it may be the right one.
void throw_if_out_of_descriptors() {
  if (errno == EMFILE || errno == ENFILE)
    throw system_error(ErrorKind::Backend,
                       "looking for the group's shared memory in other ranks", errno);
}

bool is_link_to(const Folder& folder, const char* name, const std::string& target) {
  std::array<char, 128> text;
  const ssize_t length =
      readlinkat(dirfd(folder.get()), name, text.data(), text.size());
  return length > 0 &&
         std::string_view(text.data(), static_cast<std::size_t>(length)) == target;
}

Fd open_from(int pid, const std::string& target) {
  const std::string path = "/proc/" + std::to_string(pid) + "/fd";
  const Folder folder(opendir(path.c_str()), closedir);
  if (!folder) {
    throw_if_out_of_descriptors();
    return Fd();
  }
  while (const dirent* entry = readdir(folder.get())) {
    if (!is_link_to(folder, entry->d_name, target)) continue;
    Fd found(openat(dirfd(folder.get()), entry->d_name, O_RDWR | O_CLOEXEC));
    if (found.is_open()) return found;
    throw_if_out_of_descriptors();
  }
  return Fd();
}

}  // namespace

Fd find_orphan(const Membership& membership, const std::string& name) {
  for (int peer = 0; peer < membership.size(); ++peer) {
    if (peer == membership.rank) continue;
    // Only the group knows the name. So this is the right segment, whichever process
    // has that pid now.
    if (Fd found =
            open_from(membership.process(peer).pid, "/memfd:" + name + " (deleted)");
        found.is_open())
      return found;
  }
  return Fd();
}

}  // namespace allhands
