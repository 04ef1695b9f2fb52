// The flight memory: what a group takes of it goes back, a forked child takes nothing
// from its parent, and where there is none all works as well.
#include "allhands/base/flight_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "allhands/base/flight_ring.hpp"
#include "check.hpp"

using namespace allhands;

namespace {

constexpr std::size_t kSlots = 256;
constexpr FlightFacts kFacts = {.dtype = DType::Float64, .count = 3};

// As others find it.
Fd opened() {
  const std::string name = "/memfd:allhands.flight." + std::to_string(getpid());
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto link = std::filesystem::read_symlink(entry.path(), gone).string();
    if (link.starts_with(name)) return Fd(open(entry.path().c_str(), O_RDONLY));
  }
  return Fd();
}

struct stat status_of(const Fd& file) {
  struct stat status{};
  CHECK(fstat(file.get(), &status) == 0);
  return status;
}

// A row of the file, mapped as readers could.
class Mapped {
 public:
  explicit Mapped(const Fd& file)
      : memory_(mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, file.get(), 0)) {
    CHECK(memory_ != MAP_FAILED);
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  ~Mapped() { munmap(memory_, kBytes); }

  const FlightLines& row(std::size_t i) const {
    const auto* const rows = static_cast<std::byte*>(memory_) + FlightMemory::kRowsAt;
    return reinterpret_cast<const FlightLines*>(rows)[i];
  }

 private:
  static constexpr std::size_t kBytes = FlightMemory::kRowsAt + 2 * sizeof(FlightLines);

  void* memory_;
};

// A group with a ring.
struct Group {
  explicit Group(std::shared_ptr<FlightMemory> memory)
      : row(std::move(memory),
            {.name = "g", .key = 7, .rank = 1, .size = 2, .num_slots = kSlots}),
        ring(kSlots, row, 0) {}
  void run(std::uint64_t number) { ring.begin(number, kFacts)->return_from(); }

  FlightRow row;
  FlightRing ring;
};

void test_others_see_what_a_group_does() {
  const auto memory = FlightMemory::create();
  memory->mark("0123456789abcdef", 3, 4, "host");
  Group group(memory);
  for (std::uint64_t number = 1; number <= 300; ++number) group.run(number);
  const Mapped mapped(opened());
  const FlightLines& lines = mapped.row(0);
  CHECK(lines.generation == 1 && lines.key == 7 && lines.rank == 1 && lines.size == 2);
  CHECK(lines.heads[0].last == 300 && lines.heads[0].num_bytes == 300 * 24);
  CHECK(lines.slots_at[0] != 0 && lines.slots_at[1] == 0 && lines.num_slots == kSlots);
  CHECK(std::string(lines.name) == "g");
  CHECK(group.ring.read().size() == kSlots);
}

void test_what_a_group_took_goes_back() {
  const auto memory = FlightMemory::create();
  const Fd file = opened();
  const auto cycle = [&] {
    Group group(memory);
    for (std::uint64_t number = 1; number <= kSlots; ++number) group.run(number);
    CHECK(group.ring.read().size() == kSlots);
  };
  cycle();
  const struct stat before = status_of(file);
  for (int i = 0; i < 50; ++i) cycle();
  const struct stat after = status_of(file);
  CHECK(after.st_size == before.st_size && after.st_blocks == before.st_blocks);
  const Mapped mapped(file);
  CHECK(mapped.row(0).generation == 102);  // even: nobody's
  CHECK(mapped.row(1).generation == 0);
}

void test_a_forked_child_takes_nothing_from_its_parent() {
  const auto memory = FlightMemory::create();
  std::optional<Group> group(std::in_place, memory);
  group->run(1);
  const pid_t child = fork();
  if (child == 0) {
    std::optional<Group> own(std::in_place, memory);  // private
    own->run(1);
    const bool is_private = own->ring.read().size() == 1;
    own.reset();
    group.reset();
    memory->leave_to_parent();
    _exit(is_private ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(group->ring.read().size() == 1);
  const Mapped mapped(opened());
  CHECK(mapped.row(0).generation == 1);
  CHECK(mapped.row(0).heads[0].last == 1);
  CHECK(mapped.row(1).generation == 0);
}

void test_without_descriptors_records_are_private() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit none = {0, limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  const auto memory = FlightMemory::create();
  setrlimit(RLIMIT_NOFILE, &limit);
  CHECK(memory == nullptr);
  Group group(memory);
  group.run(1);
  CHECK(group.ring.read().size() == 1);
}

// The program closed what is not its own, and opened a file, which got the number.
void test_another_file_with_its_number_is_left_alone() {
  const auto memory = FlightMemory::create();
  int number = -1;
  {
    const Fd found = opened();
    for (int i = 3; i < found.get(); ++i) {
      struct stat status{};
      if (fstat(i, &status) == 0 && status.st_ino == status_of(found).st_ino)
        number = i;
    }
  }
  CHECK(number >= 0);
  char path[] = "/tmp/flight_memory_test_XXXXXX";
  const Fd file(mkstemp(path));
  unlink(path);
  CHECK(write(file.get(), "text", 4) == 4);
  dup2(file.get(), number);
  {
    Group group(memory);
    group.run(1);
    CHECK(group.ring.read().size() == 1);
  }
  CHECK(status_of(file).st_size == 4);
  memory->leave_to_parent();
  CHECK(fcntl(number, F_GETFD) >= 0);  // the program's
  close(number);
}

void test_more_groups_than_rows_are_private() {
  const auto memory = FlightMemory::create();
  std::vector<std::unique_ptr<FlightRow>> rows;
  for (std::size_t i = 0; i < FlightMemory::kMostRows; ++i)
    rows.push_back(std::make_unique<FlightRow>(memory, FlightRow::Group{}));
  Group group(memory);
  group.run(1);
  CHECK(group.ring.read().size() == 1);
}

void test_departures_are_told() {
  const auto memory = FlightMemory::create();
  constexpr std::uint64_t kMost = FlightMemory::kMostDepartures;
  CHECK(!FlightMemory::has_departed(getpid(), 0));
  for (std::uint64_t key = 1; key <= kMost + 1; ++key) memory->note_departure(key);
  CHECK(!FlightMemory::has_departed(getpid(), 1));  // the oldest is forgotten
  CHECK(FlightMemory::has_departed(getpid(), 2));
  CHECK(FlightMemory::has_departed(getpid(), kMost + 1));
  CHECK(!FlightMemory::has_departed(getpid(), kMost + 2));
  Group group(memory);  // its slots are behind them
  group.run(1);
  CHECK(FlightMemory::has_departed(getpid(), kMost + 1));
}

void test_beginnings_are_told() {
  const auto memory = FlightMemory::create();
  const auto count = [](std::uint64_t key, int rank) {
    return FlightMemory::num_collectives(getpid(), key, rank);
  };
  CHECK(count(7, 1) == 0);
  {
    Group group(memory);
    CHECK(count(7, 1) == 0);
    group.run(3);
    CHECK(count(7, 1) == 3 && count(7, 0) == 0 && count(8, 1) == 0);
  }
  CHECK(count(7, 1) == 0);  // it is nobody's now
}

// Whatever a file of that name holds.
void test_departures_of_a_broken_file_are_none() {
  const std::string name = "allhands.flight." + std::to_string(getpid());
  const Fd file(memfd_create(name.c_str(), MFD_CLOEXEC));
  CHECK(!FlightMemory::has_departed(getpid(), 1));
  const std::vector<std::uint32_t> words(512, ~0U);
  CHECK(write(file.get(), words.data(), 2048) == 2048);
  CHECK(!FlightMemory::has_departed(getpid(), ~0ULL));
  CHECK(FlightMemory::num_collectives(getpid(), ~0ULL, -1) == 0);
}

void test_a_forked_child_notes_no_departures() {
  const auto memory = FlightMemory::create();
  const pid_t child = fork();
  if (child == 0) {
    memory->note_departure(7);
    _exit(0);
  }
  CHECK(waitpid(child, nullptr, 0) == child);
  CHECK(!FlightMemory::has_departed(getpid(), 7));
}

}  // namespace

int main() {
  test_departures_are_told();
  test_beginnings_are_told();
  test_departures_of_a_broken_file_are_none();
  test_a_forked_child_notes_no_departures();
  test_others_see_what_a_group_does();
  test_what_a_group_took_goes_back();
  test_a_forked_child_takes_nothing_from_its_parent();
  test_without_descriptors_records_are_private();
  test_another_file_with_its_number_is_left_alone();
  test_more_groups_than_rows_are_private();
}
