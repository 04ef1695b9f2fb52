// /proc/<pid>/fd shows what a process has open, memory among it, and lets its user open
// that too.
#include "allhands/base/memory_of.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <string_view>

#include "allhands/base/error.hpp"

namespace allhands {
namespace {

using Folder = std::unique_ptr<DIR, int (*)(DIR*)>;

// Entries that vanish meanwhile or may not be opened are skipped. But none is skipped
// for want of descriptors, since it may be the right one.
void throw_if_out_of_descriptors(int pid) {
  if (errno == EMFILE || errno == ENFILE)
    throw system_error(ErrorKind::Backend,
                       "looking for memory of process " + std::to_string(pid), errno);
}

bool is_link_to(const Folder& folder, const char* name, const std::string& target) {
  std::array<char, 128> text;
  const ssize_t length =
      readlinkat(dirfd(folder.get()), name, text.data(), text.size());
  return length > 0 &&
         std::string_view(text.data(), static_cast<std::size_t>(length)) == target;
}

}  // namespace

Fd open_memory_of(int pid, const std::string& name, int flags) {
  const std::string target = "/memfd:" + name + " (deleted)";
  const std::string path = "/proc/" + std::to_string(pid) + "/fd";
  const Folder folder(opendir(path.c_str()), closedir);
  if (!folder) {
    throw_if_out_of_descriptors(pid);
    return Fd();
  }
  while (const dirent* entry = readdir(folder.get())) {
    if (!is_link_to(folder, entry->d_name, target)) continue;
    Fd found(openat(dirfd(folder.get()), entry->d_name, flags | O_CLOEXEC));
    if (found.is_open()) return found;
    throw_if_out_of_descriptors(pid);
  }
  return Fd();
}

}  // namespace allhands
