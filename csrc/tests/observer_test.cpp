// Every operation of a group passes its observer once, however it is issued.
#include "allhands/comm/observer.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "allhands/comm/communicator.hpp"
#include "communicators.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

struct Seen {
  std::string op;
  std::uint64_t sequence;
  std::uint64_t count;
  int root, peer;
  std::int64_t tag;
  bool is_async;
  int num_ends = 0;
  std::exception_ptr error = nullptr;
};

class Notebook : public Observer {
 public:
  std::uint64_t before(const OperationRecord& record) noexcept override {
    CHECK(record.group == "test");
    const std::lock_guard lock(mutex_);
    seen_.push_back({std::string(record.op), record.sequence, record.count, record.root,
                     record.peer, record.tag, record.is_async});
    return seen_.size() - 1;
  }
  void after(std::uint64_t token, std::exception_ptr error) noexcept override {
    const std::lock_guard lock(mutex_);
    ++seen_.at(token).num_ends;
    seen_[token].error = std::move(error);
  }
  // Once all have ended: an asynchronous one may tell just after its waiter has gone
  // on.
  std::vector<Seen> pages() {
    while (true) {
      {
        const std::lock_guard lock(mutex_);
        const auto has_ended = [](const Seen& seen) { return seen.num_ends != 0; };
        if (std::all_of(seen_.begin(), seen_.end(), has_ended)) break;
      }
      std::this_thread::yield();
    }
    for (const Seen& seen : seen_) CHECK(seen.num_ends == 1);
    return seen_;
  }

 private:
  std::mutex mutex_;
  std::vector<Seen> seen_;
};

// Runs body(comm, notebook) as every rank; afterwards the group is closed.
template <class Body>
void run_observed(int size, Body body) {
  run_communicators(size, [&](Communicator& comm) {
    Notebook notebook;
    comm.observe(&notebook);
    body(comm, notebook);
    comm.close(soon());  // while the notebook is there
  });
}

ErrorKind kind_of(const Seen& seen) {
  return error_of([&] { std::rethrow_exception(seen.error); }).kind();
}

void test_each_operation_passes_once() {
  run_observed(2, [](Communicator& comm, Notebook& notebook) {
    std::vector<float> data(5, 1);
    const Buffer buffer = buffer_of(data);
    const int peer = 1 - comm.rank();
    comm.run(barrier(), soon());
    const Operation sum = all_reduce(buffer, buffer, ReduceOp::Sum, 1);
    const auto work = comm.post(sum, soon().deadline);
    comm.wait(*work, soon());
    comm.run(sum, soon());  // as a persistent request does
    comm.run(all_reduce_coalesced({buffer, buffer}), soon());
    comm.run(broadcast(buffer, 1), soon());
    comm.empty_shared(DType::Float32, {7}, soon());
    const auto received = comm.post_recv(buffer, kAnySource, 8, soon());
    comm.send(buffer, peer, 8, soon());
    comm.engine().wait(received, soon(), ProgressEngine::AtEnd::GoOn);
    const auto sent = comm.post_send(buffer, peer, 9, soon());
    comm.engine().drive(sent);
    comm.recv(buffer, peer, 9, soon());
    sent->work.wait(soon());

    const std::vector<Seen> seen = notebook.pages();
    const auto is = [&](std::size_t i, const char* op, std::uint64_t sequence,
                        std::uint64_t count, bool is_async) {
      CHECK(seen[i].op == op && seen[i].sequence == sequence);
      CHECK(seen[i].count == count && seen[i].is_async == is_async);
      CHECK(seen[i].error == nullptr);
    };
    CHECK(seen.size() == 10);
    is(0, "barrier", 1, 0, false);
    is(1, "all_reduce", 2, 5, true);
    is(2, "all_reduce", 3, 5, false);
    is(3, "all_reduce_coalesced", 4, 10, false);
    is(4, "broadcast", 5, 5, false);
    CHECK(seen[4].root == 1 && seen[3].root == -1);
    is(5, "empty_shared", 6, 7, false);
    is(6, "recv", 0, 5, true);
    CHECK(seen[6].peer == kAnySource && seen[6].tag == 8);
    is(7, "send", 0, 5, false);
    CHECK(seen[7].peer == peer);
    is(8, "send", 0, 5, true);
    is(9, "recv", 0, 5, false);
    CHECK(seen[9].tag == 9);
  });
}

void test_how_an_operation_failed_is_told() {
  run_observed(2, [](Communicator& comm, Notebook& notebook) {
    std::vector<float> data(5, 1);
    const Buffer buffer = buffer_of(data);
    const int rank = comm.rank(), peer = 1 - rank;
    error_of([&] { comm.run(broadcast(buffer, rank), soon()); });
    const auto work = comm.post(broadcast(buffer, rank), soon().deadline);
    error_of([&] { comm.wait(*work, soon()); });
    const Limits short_time = within(std::chrono::milliseconds(1));
    error_of([&] { comm.recv(buffer, peer, 1, short_time); });
    const auto received = comm.post_recv(buffer, peer, 1, short_time);
    error_of([&] {
      comm.engine().wait(received, short_time, ProgressEngine::AtEnd::GiveUp);
    });
    const auto too_large = {std::size_t{1} << 50};
    error_of([&] { comm.empty_shared(DType::UInt8, too_large, soon()); });
    const std::vector<Seen> seen = notebook.pages();
    CHECK(seen.size() == 5);
    CHECK(kind_of(seen[0]) == ErrorKind::Mismatch);
    CHECK(kind_of(seen[1]) == ErrorKind::Mismatch);
    CHECK(kind_of(seen[2]) == ErrorKind::Timeout);
    CHECK(kind_of(seen[3]) == ErrorKind::Timeout);
    CHECK(kind_of(seen[4]) == ErrorKind::Backend);
  });
}

void test_what_a_closed_group_ends_is_told() {
  run_observed(2, [](Communicator& comm, Notebook& notebook) {
    if (comm.rank() == 1) return;
    std::vector<float> data(5, 1);
    const auto work = comm.post(barrier(), soon().deadline);
    comm.post_recv(buffer_of(data), 1, 0, soon());
    comm.close({Deadline::after(std::chrono::milliseconds(10))});
    const std::vector<Seen> seen = notebook.pages();
    CHECK(seen.size() == 2 && seen[0].error && seen[1].error);
    CHECK(work->has_untold_error());  // who only watches has asked nothing
    CHECK_THROWS(comm.post(barrier(), soon().deadline), Error);
    CHECK_THROWS(comm.send(buffer_of(data), 1, 0, soon()), Error);
    CHECK(notebook.pages().size() == 2);  // these were none
  });
}

void test_no_observer_any_more() {
  run_observed(1, [](Communicator& comm, Notebook& notebook) {
    comm.run(barrier(), soon());
    comm.observe(nullptr);
    comm.run(barrier(), soon());
    comm.observe(&notebook);
    comm.post(barrier(), soon().deadline)->wait(soon());
    const std::vector<Seen> seen = notebook.pages();
    CHECK(seen.size() == 2 && seen[0].sequence == 1 && seen[1].sequence == 3);
  });
}

// Of several threads, with the group's own threads among them.
void test_threads() {
  run_observed(2, [](Communicator& comm, Notebook& notebook) {
    constexpr int kRounds = 200;
    const int peer = 1 - comm.rank();
    std::thread messages([&] {
      std::vector<float> mine(3000, 1), theirs(3000);
      for (int i = 0; i < kRounds; ++i) {
        const auto sent = comm.post_send(buffer_of(mine), peer, i, soon());
        comm.engine().drive(sent);
        comm.recv(buffer_of(theirs), peer, i, soon());
        sent->work.wait(soon());
      }
    });
    std::vector<std::shared_ptr<Work>> works;
    for (int i = 0; i < kRounds; ++i) {
      works.push_back(comm.post(barrier(), soon().deadline));
      if (i % 7 == 0) comm.run(barrier(), soon());
    }
    for (const auto& work : works) work->wait(soon());
    messages.join();
    const std::vector<Seen> seen = notebook.pages();
    std::vector<std::uint64_t> numbers;
    for (const Seen& one : seen)
      if (one.op == "barrier") numbers.push_back(one.sequence);
    const std::size_t num_barriers = kRounds + (kRounds + 6) / 7;
    CHECK(seen.size() == num_barriers + 2 * kRounds);
    CHECK(std::is_sorted(numbers.begin(), numbers.end()));
    CHECK(numbers.size() == num_barriers && numbers.back() == num_barriers);
  });
}

}  // namespace

int main() {
  test_each_operation_passes_once();
  test_how_an_operation_failed_is_told();
  test_what_a_closed_group_ends_is_told();
  test_no_observer_any_more();
  test_threads();
}
