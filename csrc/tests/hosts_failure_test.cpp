// What ranks on several hosts learn where one of them does not come to a collective,
// or does not finish it.
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fake_hosts.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

constexpr std::chrono::milliseconds kShort{300};

const std::vector<Hosting> kHostings = {
    {0, 1}, {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 1, 2}};

Operation sum(std::vector<float>& data) {
  return all_reduce(buffer_of(data), buffer_of(data), ReduceOp::Sum, 1);
}

// It is broken for good, with the same error.
void check_broken(HostRank& rank, const Error& error) {
  std::vector<float> data(5, 1);
  const Error again = error_of([&] { rank.run(sum(data)); });
  CHECK(again.kind() == error.kind() && again.ranks() == error.ranks());
}

// Each rank of each group in turn leaves instead of the call.
void test_a_rank_that_left_is_named_on_every_rank(std::size_t count) {
  for (const Hosting& hosting : kHostings)
    for (int gone = 0; gone < static_cast<int>(hosting.size()); ++gone) {
      std::atomic<int> num_through = 0, num_told = 0;
      run_on_hosts(hosting, [&](HostRank& rank) {
        std::vector<float> data(count, 1);
        rank.run(sum(data));
        // What breaks the group ends a call that this rank is not through with, too.
        ++num_through;
        while (num_through < rank.size()) std::this_thread::yield();
        if (rank.rank() == gone) return rank.leave();
        const Error error = error_of([&] { rank.run(sum(data)); });
        CHECK(error.kind() == ErrorKind::RankFailed);
        CHECK(error.ranks() == std::vector<int>{gone});
        CHECK(has(error, "all_reduce(float32, count " + std::to_string(count)));
        CHECK(has(error, "#2 on group 'test'"));
        CHECK(has(error, "rank " + std::to_string(gone) + " (pid "));
        // A group refuses further calls; the parts of it that are here do not.
        ++num_told;
        while (num_told + 1 < rank.size()) std::this_thread::yield();
        check_broken(rank, error);
      });
    }
}

// Each rank in turn does not come in time.
void test_a_late_rank_is_named_on_every_rank(std::size_t count) {
  for (const Hosting& hosting : kHostings)
    for (int late = 0; late < static_cast<int>(hosting.size()); ++late) {
      std::atomic<int> num_left = 0;
      run_on_hosts(hosting, [&](HostRank& rank) {
        std::vector<float> data(count, 1);
        rank.run(sum(data));
        if (rank.rank() == late) {
          while (num_left + 1 < rank.size()) std::this_thread::yield();
          return;
        }
        const Error error = error_of([&] { rank.run(sum(data), within(kShort)); });
        CHECK(error.kind() == ErrorKind::Timeout);
        CHECK(error.ranks() == std::vector<int>{late});
        CHECK(has(error, "missing [" + std::to_string(late) + "]"));
        CHECK(has(error, "(limit 0.30 s)"));
        ++num_left;
      });
    }
}

bool is_called_off() { return true; }

// Each rank in turn ends its wait for the last one, by `limits`; it gets an error of
// `kind`, and all others are told what it did.
void test_a_rank_that_gives_up_breaks_the_group(const Limits& limits, ErrorKind kind,
                                                const std::string& did) {
  for (const Hosting& hosting : kHostings)
    for (int rank_called_off = 0;
         rank_called_off + 1 < static_cast<int>(hosting.size()); ++rank_called_off) {
      const int last = static_cast<int>(hosting.size()) - 1;
      std::atomic<int> num_left = 0;
      run_on_hosts(hosting, [&](HostRank& rank) {
        std::vector<float> data(10, 1);
        const bool is_called = rank.rank() == rank_called_off;
        if (rank.rank() == last)
          while (num_left + 1 < rank.size()) std::this_thread::yield();
        const Error error =
            error_of([&] { rank.run(sum(data), is_called ? limits : soon()); });
        CHECK(error.kind() == (is_called ? kind : ErrorKind::Backend));
        const std::string who = "rank " + std::to_string(rank_called_off);
        CHECK(is_called || has(error, who));
        CHECK(is_called || has(error, did));
        ++num_left;
      });
    }
}

}  // namespace

int main() {
  test_a_rank_that_left_is_named_on_every_rank(10);
  test_a_rank_that_left_is_named_on_every_rank(50000);
  test_a_late_rank_is_named_on_every_rank(10);
  test_a_rank_that_gives_up_breaks_the_group({soon().deadline, is_called_off},
                                             ErrorKind::Interrupted, "was interrupted");
  const std::atomic<bool> is_closed = true;
  test_a_rank_that_gives_up_breaks_the_group({soon().deadline, nullptr, &is_closed},
                                             ErrorKind::Backend, "closed the group");
}
