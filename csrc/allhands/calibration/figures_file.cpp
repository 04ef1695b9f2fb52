#include "allhands/calibration/figures_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "allhands/base/fd.hpp"
#include "allhands/base/random.hpp"
#include "allhands/host/caches.hpp"

namespace allhands {
namespace {

constexpr char kName[] = "figures";
constexpr char kEnd[] = "end";
constexpr std::size_t kMostBytes = 4096;
constexpr std::uint64_t kMostTime = 1'000'000'000;  // a second

bool is_own(const Fd& fd, mode_t type) {
  struct stat found;
  return fd.is_open() && fstat(fd.get(), &found) == 0 && found.st_uid == geteuid() &&
         (found.st_mode & S_IFMT) == type && (found.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// Returns a closed Fd if the folder does not belong to this user alone.
Fd open_folder(const std::string& path) {
  Fd folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  return is_own(folder, S_IFDIR) ? std::move(folder) : Fd();
}

std::string read_whole(const Fd& file) {
  std::string text(kMostBytes, '\0');
  std::size_t length = 0;
  while (length < text.size()) {
    const ssize_t count =
        ::read(file.get(), text.data() + length, text.size() - length);
    if (count <= 0) break;
    length += static_cast<std::size_t>(count);
  }
  text.resize(length);
  return text;
}

bool write_whole(const Fd& file, const std::string& text) {
  return ::write(file.get(), text.data(), text.size()) ==
         static_cast<ssize_t>(text.size());
}

void put(std::ostream& out, const Figures::Times& times) {
  for (const std::uint64_t time : times) out << time << '\n';
}

bool get(std::istream& in, std::uint64_t& time, std::uint64_t least) {
  return in >> time && time >= least && time <= kMostTime;
}

bool get(std::istream& in, Figures::Times& times) {
  for (std::uint64_t& time : times)
    if (!get(in, time, 1)) return false;
  return true;
}

std::string random_name() {
  std::string name = std::string(kName) + ".";
  for (const char byte : random_bytes(8)) {
    name += static_cast<char>('a' + (byte & 15));
    name += static_cast<char>('a' + (byte >> 4 & 15));
  }
  return name;
}

}  // namespace

const std::string& figures_key() {
  static const std::string key = [] {  // takes some 0.1 ms, so not for each group
    std::string boot;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
    return "allhands figures 3\n" + boot + "\n" + cpu_model() + "\n";
  }();
  return key;
}

std::optional<Figures> FiguresFile::read() const {
  const Fd folder = open_folder(folder_);
  if (!folder.is_open()) return std::nullopt;
  const Fd file(
      openat(folder.get(), kName, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!is_own(file, S_IFREG)) return std::nullopt;
  const std::string text = read_whole(file);
  if (!text.starts_with(key_)) return std::nullopt;
  std::istringstream in(text.substr(key_.size()));
  Figures figures;
  std::string end;
  if (!get(in, figures.slots) || !get(in, figures.read) ||
      !get(in, figures.large_slots, 0) || !get(in, figures.large_read, 0) ||
      !(in >> end) || end != kEnd)
    return std::nullopt;
  return figures;
}

bool FiguresFile::write(const Figures& figures) const {
  mkdir(folder_.c_str(), 0700);  // fails if it is there already
  const Fd folder = open_folder(folder_);
  if (!folder.is_open()) return false;
  std::ostringstream text;
  text << key_;
  put(text, figures.slots);
  put(text, figures.read);
  text << figures.large_slots << '\n' << figures.large_read << '\n';
  text << kEnd << '\n';
  const std::string name = random_name();
  const Fd file(openat(folder.get(), name.c_str(),
                       O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.is_open()) return false;
  if (write_whole(file, text.str()) &&
      renameat(folder.get(), name.c_str(), folder.get(), kName) == 0)
    return true;
  unlinkat(folder.get(), name.c_str(), 0);
  return false;
}

}  // namespace allhands
