#include "allhands/base/flight_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "allhands/base/error.hpp"
#include "allhands/base/memory_of.hpp"

namespace allhands {
namespace {

constexpr std::size_t kDeparturesAt =
    FlightMemory::kRowsAt + FlightMemory::kMostRows * sizeof(FlightLines);
constexpr std::size_t kHeadBytes =
    kDeparturesAt + FlightMemory::kMostDepartures * sizeof(std::uint64_t);

std::string name_of_file(int pid) { return "allhands.flight." + std::to_string(pid); }

Fd open_file_of(int pid) {
  try {
    return open_memory_of(pid, name_of_file(pid), O_RDONLY);
  } catch (const Error&) {
    return Fd();  // no descriptor is free
  }
}

void* map(int fd, std::size_t bytes, std::size_t at) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                            static_cast<off_t>(at));
  return memory == MAP_FAILED ? nullptr : memory;
}

std::size_t whole_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

template <std::size_t size>
void assign(char (&text)[size], std::string_view value) {
  std::memset(text, 0, size);
  value.copy(text, size);
}

}  // namespace

std::shared_ptr<FlightMemory> FlightMemory::create() {
  Fd fd(memfd_create(name_of_file(getpid()).c_str(), MFD_CLOEXEC));
  if (!fd.is_open()) return nullptr;
  const std::size_t bytes = whole_pages(kHeadBytes);
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return nullptr;
  void* const head = map(fd.get(), bytes, 0);
  if (head == nullptr) return nullptr;
  return std::shared_ptr<FlightMemory>(new FlightMemory(std::move(fd), head));
}

FlightMemory::FlightMemory(Fd fd, void* head)
    : head_(head), owner_(getpid()), fd_(std::move(fd)), end_(whole_pages(kHeadBytes)) {
  struct stat status{};
  (void)fstat(fd_.get(), &status);
  device_ = status.st_dev;
  inode_ = status.st_ino;
  header().version = kVersion;
  header().row_bytes = sizeof(FlightLines);
  header().magic = kMagic;
}

FlightMemory::~FlightMemory() {
  if (!is_own()) (void)fd_.release();
  munmap(head_, whole_pages(kHeadBytes));
}

// The program may have closed the descriptor, and another file may have its number.
bool FlightMemory::is_own() const {
  struct stat status{};
  return fd_.is_open() && fstat(fd_.get(), &status) == 0 && status.st_dev == device_ &&
         status.st_ino == inode_;
}

void FlightMemory::mark(std::string_view world, std::uint32_t rank, std::uint32_t size,
                        std::string_view host) {
  const std::lock_guard lock(mutex_);
  FlightHeader& told = header();
  const std::uint32_t generation = told.generation.load(std::memory_order_relaxed);
  told.generation.store(generation + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  told.rank = rank;
  told.size = size;
  assign(told.world, world);
  assign(told.host, host);
  told.generation.store(generation + 2, std::memory_order_release);
}

// Does not take the lock: a thread that the child does not have may hold it.
void FlightMemory::leave_to_parent() {
  if (!is_own()) (void)fd_.release();
  fd_.reset();
}

FlightLines* FlightMemory::lines(std::size_t i) {
  return reinterpret_cast<FlightLines*>(static_cast<std::byte*>(head_) + kRowsAt) + i;
}

std::atomic<std::uint64_t>* FlightMemory::departures() {
  return reinterpret_cast<std::atomic<std::uint64_t>*>(static_cast<std::byte*>(head_) +
                                                       kDeparturesAt);
}

void FlightMemory::note_departure(std::uint64_t key) {
  if (!is_owner()) return;
  const std::lock_guard lock(mutex_);
  const std::uint32_t num = header().num_departures.load(std::memory_order_relaxed);
  departures()[num % kMostDepartures].store(key, std::memory_order_relaxed);
  header().num_departures.store(num + 1, std::memory_order_release);
}

bool FlightMemory::has_departed(int pid, std::uint64_t key) {
  const Fd file = open_file_of(pid);
  if (!file.is_open()) return false;
  std::uint32_t num = 0;
  constexpr auto kNumAt = offsetof(FlightHeader, num_departures);
  if (pread(file.get(), &num, sizeof(num), kNumAt) != sizeof(num)) return false;
  std::vector<std::uint64_t> keys(std::min<std::size_t>(num, kMostDepartures));
  const std::size_t bytes = keys.size() * sizeof(key);
  return pread(file.get(), keys.data(), bytes, kDeparturesAt) ==
             static_cast<ssize_t>(bytes) &&
         std::ranges::find(keys, key) != keys.end();
}

std::uint64_t FlightMemory::num_collectives(int pid, std::uint64_t key, int rank) {
  const Fd file = open_file_of(pid);
  std::uint32_t num_rows = 0;
  constexpr auto kNumAt = offsetof(FlightHeader, num_rows);
  if (!file.is_open() ||
      pread(file.get(), &num_rows, sizeof(num_rows), kNumAt) != sizeof(num_rows))
    return 0;
  for (std::size_t i = 0; i < std::min<std::size_t>(num_rows, kMostRows); ++i) {
    FlightLines lines;
    const auto at = static_cast<off_t>(kRowsAt + i * sizeof(lines));
    if (pread(file.get(), static_cast<void*>(&lines), sizeof(lines), at) !=
        sizeof(lines))
      return 0;
    const bool is_used = lines.generation.load(std::memory_order_relaxed) % 2 == 1;
    if (is_used && lines.key == key && lines.rank == static_cast<std::uint32_t>(rank))
      return lines.heads[0].last.load(std::memory_order_relaxed);
  }
  return 0;
}

FlightLines* FlightMemory::take_lines() {
  const std::lock_guard lock(mutex_);
  if (!fd_.is_open() || !is_owner()) return nullptr;
  if (!free_lines_.empty()) {
    FlightLines* const again = free_lines_.back();
    free_lines_.pop_back();
    return again;
  }
  const std::uint32_t num_rows = header().num_rows.load(std::memory_order_relaxed);
  if (num_rows == kMostRows) return nullptr;
  header().num_rows.store(num_rows + 1, std::memory_order_release);
  return lines(num_rows);
}

void FlightMemory::give_back(FlightLines* lines) {
  if (!is_owner()) return;
  const std::lock_guard lock(mutex_);
  free_lines_.push_back(lines);
}

bool FlightMemory::grow_to(std::size_t end) {
  if (ftruncate(fd_.get(), static_cast<off_t>(end)) != 0) return false;
  end_ = end;
  return true;
}

void* FlightMemory::take(std::size_t bytes, std::uint64_t* at) {
  const std::lock_guard lock(mutex_);
  if (!is_owner() || !is_own()) return nullptr;
  const std::size_t whole = whole_pages(bytes);
  // Reuses only ranges of exactly this size: most rings of a process have the same
  // size.
  const auto again = free_.find(whole);
  const std::size_t offset = again != free_.end() ? again->second : end_;
  if (again == free_.end() && !grow_to(offset + whole)) return nullptr;
  void* const memory = map(fd_.get(), whole, offset);
  if (memory == nullptr) {
    if (again == free_.end()) free_.emplace(whole, offset);
    return nullptr;
  }
  if (again != free_.end()) free_.erase(again);
  *at = offset;
  return memory;
}

void FlightMemory::give_back(void* memory, std::size_t bytes, std::uint64_t at) {
  const std::size_t whole = whole_pages(bytes);
  // Uses the mapping, which the program cannot have closed. The pages are freed, and
  // are zero if they are used again.
  const bool is_free = is_owner() && madvise(memory, whole, MADV_REMOVE) == 0;
  munmap(memory, whole);
  if (!is_free) return;
  const std::lock_guard lock(mutex_);
  free_.emplace(whole, at);
}

}  // namespace allhands
