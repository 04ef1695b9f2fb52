// Whole groups of processes, of which one has something write over all that the group
// shares: where ranks meet, where arrays go through, and where messages do. No rank may
// crash or wait beyond its limits, whatever is written.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "communicators.hpp"
#include "rank_processes.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

constexpr std::chrono::milliseconds kLimit{200};  // of a call
constexpr std::chrono::seconds kHang{300};        // far beyond what all calls may take
constexpr int kCalls = 2000;

struct Range {
  std::byte* begin;
  std::byte* end;
};

// Where this process has its group's segment, and then any shared arrays.
std::vector<Range> shared_ranges() {
  std::ifstream maps("/proc/self/maps");
  std::vector<Range> ranges;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:allhands") == std::string::npos) continue;
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream(line) >> std::hex >> begin >> dash >> end;
    ranges.push_back(
        {reinterpret_cast<std::byte*>(begin), reinterpret_cast<std::byte*>(end)});
  }
  return ranges;
}

// What writes over the segment of a group: a child of one of its ranks.
class Scribbler {
 public:
  Scribbler(unsigned seed, int size)
      : random_(seed), ranges_(shared_ranges()), layout_(size) {
    CHECK(!ranges_.empty());
  }

  // Until its parent is gone.
  [[noreturn]] void run(Aside& aside, pid_t parent) {
    const int pace = static_cast<int>(pick(4)) * 10;
    while (getppid() == parent) {
      std::byte* const at = place();
      write_nonsense(random_, at, ranges_[0].end);
      const int next = aside.num_rounds + pace;
      const Deadline last = Deadline::after(std::chrono::milliseconds(5));
      while (aside.num_rounds < next && !last.is_expired() && getppid() == parent)
        std::this_thread::yield();
    }
    _exit(0);
  }

 private:
  std::uint64_t pick(std::uint64_t limit) { return random_() % limit; }
  int pick_rank() { return static_cast<int>(pick(std::uint64_t(layout_.size()))); }

  std::byte* place() {
    std::byte* const base = ranges_[0].begin;
    switch (pick(5)) {
      case 0:  // what all have once
        return base + 8 * pick(sizeof(Header) / 8);
      case 1:  // what a rank says
      case 2:
        return reinterpret_cast<std::byte*>(&layout_.control(base, pick_rank())) +
               8 * pick(sizeof(RankControl) / 8);
      case 3:  // what it says where it is about to put its data
        return layout_.slot(base, pick_rank(), pick(2)) + 8 * pick(32);
      default:  // what messages go through
        return base + layout_.total_bytes() + 8 * pick(1024);
    }
  }

  std::mt19937_64 random_;
  std::vector<Range> ranges_;
  Layout layout_;
};

// One rank's calls, which are those of all ranks.
class Caller {
 public:
  Caller(Communicator& comm, unsigned seed) : comm_(comm), random_(seed) {}

  void call() {
    constexpr std::size_t kCounts[] = {1, 2, 8, 100, 5000, 50'000, 300'000};
    count_ = kCounts[random_() % std::size(kCounts)];
    one_.assign(2 * count_, 1);
    all_.assign(size() * count_, 1);
    others_.assign(size() * count_, 2);
    const auto root = static_cast<int>(random_() % size());
    switch (const auto which = random_() % 14) {
      case 12:
        return exchange();
      case 13:
        return share(root);
      default:
        return run(operation(static_cast<int>(which), root), random_() % 4 == 0);
    }
  }

 private:
  std::size_t size() const { return static_cast<std::size_t>(comm_.size()); }
  std::vector<Buffer> parts(std::vector<float>& data) const {
    return cut(data, std::vector<std::size_t>(size(), count_));
  }
  std::vector<Buffer> parts_at(int root, std::vector<float>& data) const {
    return comm_.rank() == root ? parts(data) : std::vector<Buffer>();
  }
  // Of every other element, at times.
  Buffer array() {
    Buffer all = {one_.data(), DType::Float32, count_, {}, 0};
    if (random_() % 4 == 0)
      all.dimensions = {{static_cast<std::int64_t>(count_), 2 * sizeof(float)}};
    return all;
  }

  Operation operation(int which, int root) {
    const Buffer mine = array();
    switch (which) {
      case 0:
        return barrier();
      case 1:
        return all_reduce(mine, mine, ReduceOp::Sum, {});
      case 2:
        return reduce(mine, root, ReduceOp::Max, {});
      case 3:
        return reduce_scatter(mine, parts(all_), ReduceOp::Sum, {});
      case 4:
        return broadcast(mine, root);
      case 5:
        return all_gather(parts(all_), mine);
      case 6:
        return gather(parts_at(root, all_), mine, root);
      case 7:
        return scatter(mine, parts_at(root, all_), root);
      case 8:
        return all_to_all(parts(all_), parts(others_));
      case 9:
        return scan(kScan, mine, mine, ReduceOp::Sum);
      case 10:
        return all_reduce_coalesced(parts(all_));
      default:
        return all_gather_coalesced(parts(all_), {mine});
    }
  }

  void run(const Operation& operation, bool is_async) {
    comm_.check(operation);
    const Limits limits = within(kLimit);
    if (!is_async) return comm_.run(operation, limits);
    const auto work = comm_.post(operation, limits.deadline);
    try {
      comm_.wait(*work, limits);
    } catch (const Error&) {
      // The arrays are still the operation's.
      wait_until([&] { return work->is_completed(); });
      throw;
    }
  }

  void exchange() {
    const int right = (comm_.rank() + 1) % comm_.size();
    const int left = (comm_.rank() + comm_.size() - 1) % comm_.size();
    const Limits limits = within(kLimit);
    const TransferPtr received = comm_.post_recv(parts(all_)[0], left, 0, limits);
    try {
      comm_.send(parts(others_)[0], right, 0, limits);
      comm_.engine().wait(received, limits, ProgressEngine::AtEnd::GiveUp);
    } catch (const Error& error) {
      comm_.engine().give_up({&received, 1}, error);
      throw;
    }
  }

  void share(int root) {
    const auto shared = comm_.empty_shared(DType::Float32, {count_}, within(kLimit));
    const Buffer all = {
        reinterpret_cast<float*>(shared->data()), DType::Float32, count_, {}, 0};
    run(broadcast(all, root), false);
  }

  Communicator& comm_;
  std::mt19937_64 random_;
  std::size_t count_ = 0;
  std::vector<float> one_, all_, others_;
};

// Of every second group the ranks meet in a tree, as many ranks do.
Tuning tuning_of(unsigned seed, int size) {
  Tuning tuning = Tuning::for_ranks(size);
  tuning.tree_ranks = seed % 2 == 0 ? 2 : 1000;
  CHECK(tuning.is_valid());
  return tuning;
}

[[noreturn]] void run_rank(Aside& aside, int rank, int size, unsigned seed,
                           const Token& token) {
  alarm(kHang.count());
  const auto start = Deadline::Clock::now();
  Communicator comm(aside.meet(rank, size), token,
                    [&] { return tuning_of(seed, size); });
  Caller caller(comm, seed);
  // Some begin to write before others have opened the group.
  const int begin = static_cast<int>(seed / 2 % 3) * 20;
  try {
    std::vector<float> nothing(1);
    comm.post_recv(buffer_of(nothing), (rank + 1) % size, 7, within(kLimit));
    for (int i = 0; i < kCalls; ++i) {
      if (rank == size - 1 && i == begin) {
        const pid_t parent = getpid();
        if (fork() == 0) Scribbler(seed, size).run(aside, parent);
      }
      caller.call();
      ++aside.num_rounds;
    }
    comm.close(within(kLimit));
  } catch (const Error&) {
    // It has to be told somehow.
  }
  (void)comm.flight_entries();
  try {
    comm.close(within(kLimit));
  } catch (const Error&) {
  }
  CHECK(Deadline::Clock::now() - start < kHang / 2);
  _exit(0);
}

void test_no_rank_crashes_or_hangs(unsigned seed) {
  const int size = 2 + static_cast<int>(seed % 3);
  const Token token = fresh_token();
  Aside& aside = Aside::make();
  const std::vector<pid_t> ranks =
      fork_each(size, [&](int rank) { run_rank(aside, rank, size, seed, token); });
  bool are_well = true;
  for (const pid_t pid : ranks) {
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid);
    are_well &= is_well(status);
  }
  if (!are_well) std::fprintf(stderr, "seed %u\n", seed);
  CHECK(are_well);
  aside.unmap();
}

}  // namespace

int main(int argc, char** argv) {
  if (run_asked(argc, argv, test_no_rank_crashes_or_hangs)) return 0;
  if (kIsSanitized) return 77;  // they end a process for an odd bool in such memory
  for (unsigned seed = 1; seed <= 6; ++seed) test_no_rank_crashes_or_hangs(seed);
}
