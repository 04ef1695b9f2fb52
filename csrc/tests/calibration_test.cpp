// What is measured of a host, what is made of it, and the file that keeps it.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "allhands/calibration/figures_file.hpp"
#include "allhands/calibration/fit.hpp"
#include "allhands/calibration/rehearsal.hpp"
#include "check.hpp"

namespace allhands::testing {
namespace {

using std::filesystem::path;

constexpr std::uint64_t kKiB = 1 << 10, kMiB = 1 << 20, kTiB = std::uint64_t{1} << 40;

// Of a machine whose system calls are cheap, as most are.
constexpr Figures kCheap = {.slots = {1000, 7000, 60000}, .read = {1500, 4000, 30000}};
// Of one whose kernel pays for its safety at each return and page.
constexpr Figures kDear = {.slots = {1000, 7000, 60000}, .read = {3000, 20000, 49000}};
constexpr Figures kTooDear = {.slots = {1000, 7000, 60000},
                              .read = {3000, 20000, 90000},
                              .large_slots = 90000,
                              .large_read = 90001};

// Of one whose kernel pays for each page, whatever its size.
constexpr Figures kDearInSmallPages = {.slots = {1000, 7000, 60000},
                                       .read = {3000, 20000, 90000},
                                       .large_slots = 200000,
                                       .large_read = 90000};

void test_break_even() {
  CHECK(kCheap.break_even() == 16 * kKiB);  // a seventh of the way from 8 to 64
  const Figures always = {.slots = {9, 9, 9}, .read = {8, 8, 8}};
  CHECK(always.break_even() == 8 * kKiB);
  const Figures again = {.slots = {9, 9, 9}, .read = {8, 10, 8}};
  CHECK(again.break_even() == 160 * kKiB);  // what it wins below does not count
  CHECK(kDear.break_even() == 168 * kKiB);
  CHECK(kDear.break_even(3000) == 192 * kKiB);
  // On the line through the last two: 13/12 of the way from 64 to 256.
  const Figures later = {.slots = {1000, 7000, 60000}, .read = {3000, 20000, 61000}};
  CHECK(later.break_even() == 272 * kKiB);
  CHECK(later.break_even(15000) == Figures::kLargest);
  CHECK(later.break_even(15001) == Figures::kLargePages);  // nothing says otherwise
  CHECK(kTooDear.break_even() == Figures::kNever);
  CHECK(kDearInSmallPages.break_even() == 4 * kMiB);
  Figures dear = kDearInSmallPages;
  std::swap(dear.large_slots, dear.large_read);
  CHECK(dear.break_even() == Figures::kNever);
  Figures cheap = kCheap;  // reading large pages cannot be dearer
  cheap.large_slots = 1, cheap.large_read = 2;
  CHECK(cheap.break_even() == kCheap.break_even());
  const Figures level = {.slots = {9, 9, 9}, .read = {9, 9, 9}};
  CHECK(level.break_even() == Figures::kLargePages);
}

void test_a_host_of_which_nothing_is_known_has_the_usual_tuning() {
  for (const int size : {2, 8}) {
    const Tuning usual = Tuning::for_ranks(size, 4);
    const Tuning fitted = fit(size, {4, 0, std::nullopt});
    for (const Tuning::Entry& entry : Tuning::entries())
      CHECK(fitted.*entry.value == usual.*entry.value);
  }
}

void test_fit_to_caches() {
  const Tuning large = fit(2, {2, 260 * kMiB, std::nullopt});
  CHECK(large.stream_bytes == 8 * kMiB && large.read_most_bytes == 48 * kMiB);
  const Tuning middle = fit(2, {2, 64 * kMiB, std::nullopt});
  CHECK(middle.stream_bytes == 8 * kMiB && middle.read_most_bytes == 12 * kMiB);
  const Tuning small = fit(2, {2, 16 * kMiB, std::nullopt});
  CHECK(small.stream_bytes == 4 * kMiB && small.read_most_bytes == 8 * kMiB);
  for (const std::uint64_t cache : {std::uint64_t{0}, 32 * kMiB})
    CHECK(fit(2, {2, cache, std::nullopt, true}).read_most_bytes == kTiB);
  const Tuning crowded = fit(4, {2, 16 * kMiB, std::nullopt});
  CHECK(crowded.stream_bytes == 2 * kMiB && crowded.read_most_bytes == kTiB);
  CHECK(crowded.chunk_bytes == 256 * kKiB);
  CHECK(fit(4, {4, 32 * kMiB, std::nullopt}).stream_bytes == 4 * kMiB);
  CHECK(fit(64, {64, 32 * kMiB, std::nullopt}).stream_bytes == 2 * kMiB);
  CHECK(fit(4, {2, 32 * kMiB, std::nullopt}).chunk_bytes == 512 * kKiB);
  CHECK(fit(4, {2, 260 * kMiB, std::nullopt}).chunk_bytes == kMiB);
  CHECK(small.chunk_bytes == 256 * kKiB);
}

void test_fit_to_figures() {
  const Tuning cheap = fit(2, {2, 0, kCheap});
  CHECK(cheap.read_bytes == 16 * kKiB && cheap.read_rooted_bytes == 16 * kKiB);
  CHECK(cheap.read_broadcast_bytes == 32 * kKiB);
  CHECK(cheap.read_reduce_scatter_bytes == 32 * kKiB);
  CHECK(cheap.read_reduce_bytes == 4 * kMiB);
  // 4/7 of the way from 8 to 64.
  CHECK(cheap.handover_bytes == 40 * kKiB && cheap.eager_bytes == 40 * kKiB);
  const Tuning dear = fit(2, {2, 32 * kMiB, kDear});
  CHECK(dear.read_bytes == 168 * kKiB && dear.read_rooted_bytes == 64 * kKiB);
  CHECK(dear.read_broadcast_bytes == 336 * kKiB);
  CHECK(dear.handover_bytes == 192 * kKiB && dear.eager_bytes == 64 * kKiB);
  CHECK(cheap.read_all_to_all_bytes == 16 * kKiB);
  CHECK(dear.read_all_to_all_bytes == 168 * kKiB);
  CHECK(fit(4, {2, 0, kDear}).read_all_to_all_bytes == 672 * kKiB);
  CHECK(cheap.read_most_all_to_all_bytes == kTiB);
  CHECK(dear.read_most_all_to_all_bytes == 8 * kMiB);
  const Tuning never = fit(2, {2, 0, kTooDear});
  CHECK(never.read_bytes == kTiB && never.read_broadcast_bytes == kTiB);
  CHECK(never.read_reduce_scatter_bytes == kTiB && never.read_reduce_bytes == kTiB);
  CHECK(never.read_rooted_bytes == 4 * kMiB && never.handover_bytes == 4 * kMiB);
  Figures tie = kTooDear;
  tie.read.back() = 89999;
  CHECK(fit(2, {2, 0, tie}).read_rooted_bytes == 256 * kKiB);
  CHECK(fit(2, {2, 0, tie}).handover_bytes == 256 * kKiB);
  for (const int size : {2, 4}) {
    CHECK(fit(size, {2, 0, tie}).read_all_to_all_bytes == 256 * kKiB);
    CHECK(fit(size, {2, 0, kTooDear}).read_all_to_all_bytes == kTiB);
  }
  const Tuning large = fit(2, {2, 32 * kMiB, kDearInSmallPages, true});
  CHECK(large.read_bytes == 4 * kMiB && large.read_rooted_bytes == 4 * kMiB);
  CHECK(large.handover_bytes == 4 * kMiB && large.eager_bytes == 64 * kKiB);
  CHECK(large.read_reduce_scatter_bytes == kTiB && large.read_reduce_bytes == kTiB);
  CHECK(large.read_most_all_to_all_bytes == kTiB);
}

void test_fit_where_ranks_take_turns() {
  const Tuning usual = Tuning::for_ranks(4, 2);
  CHECK(fit(4, {2, 0, kCheap}).read_bytes == usual.read_bytes);
  CHECK(fit(4, {2, 0, kDear}).read_bytes == 672 * kKiB);
  CHECK(fit(4, {2, 0, kDear}).read_rooted_bytes == usual.read_rooted_bytes);
  for (const Figures& figures : {kTooDear, kDearInSmallPages}) {
    const Tuning slow = fit(4, {2, 0, figures});
    CHECK(slow.read_bytes == kTiB && slow.read_reduce_scatter_bytes == kTiB);
    CHECK(slow.read_rooted_bytes == 4 * kMiB && slow.handover_bytes == 4 * kMiB);
  }
}

// Whatever was measured, all of it is a tuning that ranks take.
void test_any_figures_give_a_valid_tuning() {
  const std::uint64_t values[] = {1, 1000, 1'000'000'000};
  for (const std::uint64_t a : values)
    for (const std::uint64_t b : values)
      for (const std::uint64_t c : values)
        for (const std::uint64_t cache : {std::uint64_t{1}, kMiB, kTiB})
          for (const int size : {1, 2, 1000}) {
            const Figures figures = {.slots = {a, b, c},
                                     .read = {c, a, b},
                                     .large_slots = a,
                                     .large_read = b};
            CHECK(fit(size, {2, cache, figures}).is_valid());
          }
}

cpu_set_t own_cpus() {
  cpu_set_t cpus;
  CHECK(sched_getaffinity(0, sizeof(cpus), &cpus) == 0);
  return cpus;
}

// On a machine with one CPU it finds nothing, as it should.
void test_rehearsal_finds_figures() {
  Rehearsal rehearsal;
  rehearsal.limit = std::chrono::seconds(60);
  const cpu_set_t cpus = own_cpus();
  const auto figures = rehearsal.run(cpus);
  CHECK(figures.has_value() == (CPU_COUNT(&cpus) > 1));
  if (!figures) return;
  for (const std::uint64_t time : figures->slots) CHECK(time > 0 && time < UINT64_MAX);
  for (const std::uint64_t time : figures->read) CHECK(time > 0 && time < UINT64_MAX);
  CHECK((figures->large_slots == 0) == (figures->large_read == 0));
  CHECK(figures->large_slots < UINT64_MAX && figures->large_read < UINT64_MAX);
}

// By a clock that stands still both ways take as long, so reading does not win.
void test_rehearsal_tries_large_pages_where_reading_does_not_win() {
  Rehearsal rehearsal;
  rehearsal.now = [] { return Rehearsal::Clock::time_point(); };
  const cpu_set_t cpus = own_cpus();
  const auto figures = rehearsal.run(cpus);
  CHECK(figures.has_value() == (CPU_COUNT(&cpus) > 1));
  if (figures) CHECK(figures->large_slots == 1 && figures->large_read == 1);
}

// Of the two threads the first to look at the time is held there until the other one
// has looked while it waits for it, and found it late.
void test_a_rehearsal_whose_other_thread_does_not_come_ends_at_its_limit() {
  const cpu_set_t cpus = own_cpus();
  if (CPU_COUNT(&cpus) < 2) return;
  std::atomic<int> num_threads = 0, num_looks = 0;
  std::atomic<bool> is_found_late = false;
  Rehearsal rehearsal;
  rehearsal.now = [&, begun = Rehearsal::Clock::now()] {
    static thread_local int number = num_threads++;  // 0: the caller's thread
    static thread_local bool is_first = true;
    if (number == 1 && std::exchange(is_first, false)) {
      const auto patience = Rehearsal::Clock::now() + std::chrono::seconds(30);
      while (num_looks < 2 && Rehearsal::Clock::now() < patience) sched_yield();
      is_found_late = num_looks >= 2;
    }
    // The other's first look is for the time of the exchange.
    if (number < 2 || num_looks++ == 0) return begun;
    return begun + std::chrono::hours(1);
  };
  CHECK(!rehearsal.run(cpus));
  CHECK(is_found_late);
}

void test_rehearsal_needs_two_cpus() {
  cpu_set_t none, one;
  CPU_ZERO(&none);
  CPU_ZERO(&one);
  CPU_SET(0, &one);
  CHECK(!Rehearsal().run(none) && !Rehearsal().run(one));
}

void test_rehearsal_without_memory_or_threads_finds_nothing() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return;  // the sanitizers need memory of their own
#endif
  rlimit usual;
  CHECK(getrlimit(RLIMIT_AS, &usual) == 0);
  const rlimit none = {1 << 20, usual.rlim_max};  // less than is in use
  CHECK(setrlimit(RLIMIT_AS, &none) == 0);
  const auto figures = Rehearsal().run(own_cpus());
  CHECK(setrlimit(RLIMIT_AS, &usual) == 0);
  CHECK(!figures);
}

// By a clock on which each look takes a tenth of the limit: at once it is over,
// whatever the machine does.
void test_rehearsal_ends_at_its_limit() {
  std::atomic<int> looks = 0;
  Rehearsal rehearsal;
  rehearsal.most_rounds = 1'000'000;
  rehearsal.now = [&] {
    return Rehearsal::Clock::time_point() + rehearsal.limit / 10 * ++looks;
  };
  CHECK(!rehearsal.run(own_cpus()));
  // One round looks 13 times in each of two threads; a wait looks until it sees the
  // end.
  CHECK(looks < 200);
}

class Folder {
 public:
  Folder() { CHECK(mkdtemp(name_) != nullptr); }
  ~Folder() { std::filesystem::remove_all(name_); }
  path operator/(const char* name) const { return path(name_) / name; }
  std::string name() const { return name_; }
  std::size_t num_files() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(name_),
                      std::filesystem::directory_iterator()));
  }

 private:
  char name_[32] = "/tmp/allhands_test_XXXXXX";
};

bool is_same(const std::optional<Figures>& found, const Figures& figures) {
  return found && found->slots == figures.slots && found->read == figures.read &&
         found->large_slots == figures.large_slots &&
         found->large_read == figures.large_read;
}

std::string text_of(const path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

void put(const path& file, const std::string& text) { std::ofstream(file) << text; }

void test_file_keeps_figures() {
  const Folder folder;
  const FiguresFile file((folder / "new").string());
  CHECK(!file.read() && file.write(kCheap) && is_same(file.read(), kCheap));
  for (const Figures& figures : {kDear, kDearInSmallPages})
    CHECK(file.write(figures) && is_same(file.read(), figures));
  struct stat found;
  CHECK(stat((folder / "new").c_str(), &found) == 0 && (found.st_mode & 0077) == 0);
  const FiguresFile other_boot((folder / "new").string(),
                               "allhands figures 3\nother\n");
  CHECK(!other_boot.read());
}

void test_file_that_is_not_whole_is_none() {
  const Folder folder;
  const FiguresFile file(folder.name());
  CHECK(file.write(kCheap));
  const std::string whole = text_of(folder / "figures");
  for (std::size_t length = 0; length + 1 < whole.size(); ++length) {
    put(folder / "figures", whole.substr(0, length));
    CHECK(!file.read());
  }
  const std::string key = figures_key();
  for (const std::string numbers :
       {"0 1 1 1 1 1 0 0 end", "-1 1 1 1 1 1 0 0 end", "1 1 1 1 1 1 0 0 0 end",
        "1 1 1 1 1 1 0 end", "1 1 1 x 1 1 0 0 end", "1 1 1 1 1 1 0 -1 end",
        "99999999999999999999 1 1 1 1 1 0 0 end", "1e3 1 1 1 1 1 0 0 end",
        "1000000001 1 1 1 1 1 0 0 end"}) {
    put(folder / "figures", key + numbers);
    CHECK(!file.read());
  }
  put(folder / "figures", key + std::string(1 << 20, '1'));
  CHECK(!file.read());
  put(folder / "figures", key + "1 1 1 1 1 1 0 0 end");
  CHECK(file.read());
}

void test_file_of_somebody_else_is_none() {
  const Folder folder;
  const FiguresFile file(folder.name());
  const std::string name = (folder / "figures").string();
  CHECK(file.write(kCheap) && file.read());
  CHECK(chmod(name.c_str(), 0620) == 0 && !file.read());
  CHECK(chmod(name.c_str(), 0602) == 0 && !file.read());
  CHECK(chmod(name.c_str(), 0644) == 0 && file.read());
  CHECK(chmod(folder.name().c_str(), 0770) == 0 && !file.read() && !file.write(kDear));
  CHECK(chmod(folder.name().c_str(), 0700) == 0 && file.read());
  // Not every root may: there are users that a container does not know.
  if (geteuid() == 0 && chown(name.c_str(), 4242, 4242) == 0) {
    CHECK(!file.read());
    CHECK(chown(name.c_str(), 0, 0) == 0 && file.read());
    CHECK(chown(folder.name().c_str(), 4242, 4242) == 0);
    CHECK(!file.read() && !file.write(kDear));
    CHECK(chown(folder.name().c_str(), 0, 0) == 0);
  }
  CHECK(symlink(folder.name().c_str(), (folder / "link").c_str()) == 0);
  const FiguresFile linked((folder / "link").string());
  CHECK(!linked.read() && !linked.write(kDear));
  std::filesystem::rename(folder / "figures", folder / "other");
  CHECK(symlink("other", name.c_str()) == 0 && !file.read());
  CHECK(unlink(name.c_str()) == 0 && mkfifo(name.c_str(), 0600) == 0 && !file.read());
  CHECK(unlink(name.c_str()) == 0 && mkdir(name.c_str(), 0700) == 0 && !file.read());
  CHECK(!file.write(kDear) && folder.num_files() == 3);  // and no draft
}

void test_full_disk_leaves_nothing() {
  const Folder folder;
  const FiguresFile file(folder.name());
  signal(SIGXFSZ, SIG_IGN);
  rlimit usual;
  CHECK(getrlimit(RLIMIT_FSIZE, &usual) == 0);
  const rlimit little = {20, usual.rlim_max};
  CHECK(setrlimit(RLIMIT_FSIZE, &little) == 0);
  CHECK(!file.write(kCheap));
  CHECK(setrlimit(RLIMIT_FSIZE, &usual) == 0);
  CHECK(folder.num_files() == 0);
  CHECK(!FiguresFile("/proc/no_such_folder").write(kCheap));
}

void test_writers_at_once_leave_a_whole_file() {
  const Folder folder;
  const FiguresFile file(folder.name());
  CHECK(file.write(kCheap));
  run_ranks(4, [&](int rank) {
    for (int i = 0; i < 200; ++i) {
      if (rank == 0) {
        CHECK(file.write(kCheap));
      } else if (rank == 1) {
        CHECK(file.write(kDear));
      } else {
        const auto found = file.read();
        CHECK(is_same(found, kCheap) || is_same(found, kDear));
      }
    }
  });
  CHECK(folder.num_files() == 1);
}

}  // namespace
}  // namespace allhands::testing

int main() {
  using namespace allhands::testing;
  test_break_even();
  test_a_host_of_which_nothing_is_known_has_the_usual_tuning();
  test_fit_to_caches();
  test_fit_to_figures();
  test_fit_where_ranks_take_turns();
  test_any_figures_give_a_valid_tuning();
  test_rehearsal_finds_figures();
  test_rehearsal_tries_large_pages_where_reading_does_not_win();
  test_a_rehearsal_whose_other_thread_does_not_come_ends_at_its_limit();
  test_rehearsal_needs_two_cpus();
  test_rehearsal_without_memory_or_threads_finds_nothing();
  test_rehearsal_ends_at_its_limit();
  test_file_keeps_figures();
  test_file_that_is_not_whole_is_none();
  test_file_of_somebody_else_is_none();
  test_full_disk_leaves_nothing();
  test_writers_at_once_leave_a_whole_file();
}
