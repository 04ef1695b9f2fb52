// Communicators of one process that find each other through the kernel.
#include "allhands/comm/communicator.hpp"

#include <algorithm>
#include <functional>
#include <string>

#include "allhands/base/error.hpp"
#include "communicators.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

void test_run(int size) {
  run_communicators(size, [&](Communicator& comm) {
    for (int round = 0; round < 100; ++round) {
      std::vector<float> data = {1, 2};
      const Buffer buffer = buffer_of(data);
      comm.run(all_reduce(buffer, buffer, ReduceOp::Sum, 1), soon());
      CHECK(data[1] == 2.0f * static_cast<float>(size));
    }
  });
}

// Queued and direct operations interleave in the order of issue.
void test_post_and_run_keep_their_order(int size) {
  run_communicators(size, [&](Communicator& comm) {
    std::vector<float> data = {1};
    const Buffer buffer = buffer_of(data);
    std::vector<std::shared_ptr<Work>> works;
    for (int round = 0; round < 50; ++round) {
      works.push_back(
          comm.post(all_reduce(buffer, buffer, ReduceOp::Max, 1), soon().deadline));
      if (round % 7 == 0) comm.run(broadcast(buffer, round % size), soon());
    }
    for (const auto& work : works) work->wait(soon());
    CHECK(data[0] == 1);
    for (const auto& work : works) CHECK(work->is_completed() && !work->error());
  });
}

void test_callback_runs_once_done() {
  run_communicators(2, [&](Communicator& comm) {
    std::atomic<int> calls = 0;
    const auto work = comm.post(barrier(), soon().deadline);
    work->on_done([&] { ++calls; });
    work->wait(soon());
    while (calls == 0) std::this_thread::yield();
    work->on_done([&] { ++calls; });
    CHECK(calls == 2);
  });
}

void test_what_nobody_waits_for_can_be_hurried() {
  run_communicators(2, [&](Communicator& comm) {
    std::vector<float> data = {1};
    const Buffer buffer = buffer_of(data);
    for (int round = 0; round < 50; ++round) {
      const auto work =
          comm.post(all_reduce(buffer, buffer, ReduceOp::Max, 1), soon().deadline);
      comm.hurry(*work);
      while (!work->is_completed()) std::this_thread::yield();
      comm.hurry(*work);
    }
  });
}

// Nobody is ahead of a wait that comes late; where none comes, it runs all the same.
void test_a_postponed_operation_is_left_to_its_waiter() {
  constexpr int kRounds = 20;
  run_communicators(2, [](Communicator& comm) {
    std::vector<float> data = {1};
    const Buffer buffer = buffer_of(data);
    int num_own = 0;
    for (int round = 0; round < kRounds; ++round) {
      const auto work =
          comm.post(all_reduce(buffer, buffer, ReduceOp::Max, 1), soon().deadline);
      comm.postpone(*work);
      std::atomic<std::thread::id> carrier;
      work->on_done([&] { carrier = std::this_thread::get_id(); });
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      comm.wait(*work, {Deadline::never()});
      while (carrier == std::thread::id()) std::this_thread::yield();
      num_own += carrier == std::this_thread::get_id();
    }
    CHECK(num_own > kRounds / 2);  // all, where the machine is not busy
    const auto work =
        comm.post(all_reduce(buffer, buffer, ReduceOp::Max, 1), soon().deadline);
    comm.postpone(*work);
    while (!work->is_completed()) std::this_thread::yield();
  });
}

// How long they lie is far more than what each of these takes, even on a busy machine.
void test_postponed_operations_hold_nobody_up() {
  constexpr int kRounds = 40;
  using Clock = std::chrono::steady_clock;
  run_communicators(2, [&](Communicator& comm) {
    std::vector<float> data = {1};
    const Buffer buffer = buffer_of(data);
    const auto post = [&] {
      return comm.post(all_reduce(buffer, buffer, ReduceOp::Max, 1), soon().deadline);
    };
    const auto postponed = [&] {
      auto work = post();
      comm.postpone(*work);
      return work;
    };
    const auto completed = [](const Work& work) {
      while (!work.is_completed()) std::this_thread::yield();
    };
    const std::vector<std::function<void()>> calls = {
        [&] {  // a later one that does not queue
          postponed();
          comm.run(barrier(), soon());
        },
        [&] {
          const auto work = postponed();
          comm.hurry(*work);
          completed(*work);
        },
        [&] {  // a later one, once the waiter has come
          comm.wait(*postponed(), {Deadline::never()});
          completed(*post());
        },
        [&] {  // one that has a limit
          comm.wait(*postponed(), soon());
        },
    };
    for (const auto& call : calls) {
      const auto start = Clock::now();
      for (int round = 0; round < kRounds; ++round) call();
      CHECK(Clock::now() - start < kRounds * std::chrono::milliseconds(250));
    }
  });
}

void test_wait_that_expires_leaves_the_operation_running() {
  run_communicators(2, [&](Communicator& comm) {
    std::vector<float> data = {1};
    const Buffer buffer = buffer_of(data);
    static std::atomic<bool> has_expired;
    if (comm.rank() == 1)
      while (!has_expired) std::this_thread::yield();
    const auto work =
        comm.post(all_reduce(buffer, buffer, ReduceOp::Sum, 1), soon().deadline);
    if (comm.rank() == 0) {
      try {
        work->wait(within(std::chrono::milliseconds(20)));
        CHECK(!"it did not throw");
      } catch (const Error& error) {
        CHECK(error.kind() == ErrorKind::Timeout);
      }
      has_expired = true;
    }
    work->wait(soon());
    CHECK(data[0] == 2);
    comm.run(barrier(), soon());
  });
}

// Whose wait gives up, leaves nothing undone: neither what it waited for nor what was
// posted later.
template <class GiveUp>
void check_left_wait(GiveUp give_up) {
  std::atomic<bool> is_left = false;
  run_communicators(2, [&](Communicator& comm) {
    std::vector<float> first = {1}, second = {2};
    comm.run(barrier(), soon());
    if (comm.rank() == 1)
      while (!is_left) std::this_thread::yield();
    const auto post = [&](std::vector<float>& data) {
      const Buffer buffer = buffer_of(data);
      return comm.post(all_reduce(buffer, buffer, ReduceOp::Sum, 1), soon().deadline);
    };
    const auto works = {post(first), post(second)};
    if (comm.rank() == 0) {
      give_up(comm, **works.begin());
      is_left = true;
    }
    comm.close(soon());  // nobody waits again
    for (const auto& work : works) CHECK(work->is_completed() && !work->error());
    CHECK(first[0] == 2 && second[0] == 4);
  });
}

void test_a_wait_with_a_limit_that_ends_before_the_peers_come() {
  check_left_wait([](Communicator& comm, Work& work) {
    const Error error =
        error_of([&] { comm.wait(work, within(std::chrono::milliseconds(20))); });
    CHECK(error.kind() == ErrorKind::Timeout);
  });
}

void test_a_wait_that_is_interrupted_before_the_peers_come() {
  check_left_wait([](Communicator& comm, Work& work) {
    const Error error =
        error_of([&] { comm.wait(work, without_limit([] { return true; })); });
    CHECK(error.kind() == ErrorKind::Interrupted);
  });
}

// The thread sleeps while another one carries out the only operation, but not longer.
void test_what_an_interrupted_wait_leaves_is_done_while_nobody_waits() {
  std::atomic<bool> is_left = false;
  run_communicators(2, [&](Communicator& comm) {
    std::vector<float> data = {1};
    const Buffer buffer = buffer_of(data);
    comm.run(barrier(), soon());
    if (comm.rank() == 1)
      while (!is_left) std::this_thread::yield();
    const auto work =
        comm.post(all_reduce(buffer, buffer, ReduceOp::Sum, 1), soon().deadline);
    if (comm.rank() == 0) {
      static int looks;
      looks = 0;
      const Error error = error_of(
          [&] { comm.wait(*work, without_limit([] { return ++looks == 3; })); });
      CHECK(error.kind() == ErrorKind::Interrupted);
      is_left = true;
    }
    work->wait(soon());  // without carrying it out
    CHECK(data[0] == 2);
  });
}

// Of operations of every size: those whose memory peers read are the progress thread's
// alone.
void test_a_callback_may_wait_for_another_operation() {
  run_communicators(2, [&](Communicator& comm) {
    comm.run(barrier(), soon());
    for (const std::size_t count : {std::size_t{1}, std::size_t{4'000'000}}) {
      std::vector<float> data(count, 1);
      const Buffer buffer = buffer_of(data);
      const auto first = comm.post(barrier(), soon().deadline);
      const auto second =
          comm.post(all_reduce(buffer, buffer, ReduceOp::Sum, 1), soon().deadline);
      std::atomic<int> num_ended = 0;
      first->on_done([&] {
        comm.run(barrier(), soon());
        CHECK(second->is_completed());
        comm.wait(*second, soon());
        comm.wait(*comm.post(broadcast(buffer, 0), soon().deadline), without_limit());
        const auto third = comm.post(broadcast(buffer, 1), soon().deadline);
        comm.hurry(*third);
        // The progress thread may be asleep for this callback alone.
        while (!third->is_completed()) std::this_thread::yield();
        ++num_ended;
      });
      while (num_ended == 0) std::this_thread::yield();
      CHECK(data[count - 1] == 2);
    }
  });
}

// Whichever way they are issued.
void test_operations_are_numbered_alike() {
  run_communicators(2, [&](Communicator& comm) {
    std::vector<float> data = {1};
    const Buffer buffer = buffer_of(data);
    comm.run(barrier(), soon());
    const auto work = comm.post(barrier(), soon().deadline);
    comm.empty_shared(DType::Float32, {1}, soon());
    const int peer = 1 - comm.rank();  // messages are not counted
    comm.engine().wait(comm.post_send(buffer, peer, 0, soon()), soon(),
                       ProgressEngine::AtEnd::GoOn);
    comm.recv(buffer, peer, 0, soon());
    const Operation unlike = broadcast(buffer, comm.rank());
    const Error fourth = error_of([&] { comm.run(unlike, soon()); });
    CHECK(has(fourth, "called different things as operation #4:"));
    const auto fifth = comm.post(unlike, soon().deadline);
    CHECK(has(error_of([&] { comm.wait(*fifth, soon()); }), "operation #5:"));
    work->wait(soon());
  });
}

void test_arguments() {
  run_communicators(1, [&](Communicator& comm) {
    std::vector<float> two(2), three(3);
    const auto is_refused = [&](const Operation& operation) {
      CHECK_THROWS(comm.check(operation), Error);
    };
    is_refused(all_reduce(buffer_of(two), buffer_of(three), ReduceOp::Sum, 1));
    is_refused(broadcast(buffer_of(two), 1));
    is_refused(broadcast(buffer_of(two), -1));
    is_refused(all_gather({}, buffer_of(two)));
    is_refused(all_reduce(buffer_of(two), buffer_of(two), ReduceOp::BitOr, 1));
    is_refused(gather({}, buffer_of(two), 0));
    is_refused(gather({buffer_of(three)}, buffer_of(two), 0));
    comm.check(gather({buffer_of(two)}, buffer_of(two), 0));
  });
}

// Messages around the ring of a group: a blocking send beside a posted receive, then a
// send that the engine's thread takes to its end.
void pass_messages(Communicator& comm, int rounds) {
  const int right = (comm.rank() + 1) % comm.size();
  const int left = (comm.rank() + comm.size() - 1) % comm.size();
  for (int i = 0; i < rounds; ++i) {
    std::vector<float> mine(i % 2 == 0 ? 3 : 5000, static_cast<float>(i));
    std::vector<float> theirs(mine.size());
    const auto finish = [&](const TransferPtr& transfer) {
      comm.engine().wait(transfer, soon(), ProgressEngine::AtEnd::GiveUp);
    };
    const auto received = comm.post_recv(buffer_of(theirs), left, i, soon());
    finish(comm.post_send(buffer_of(mine), right, i, soon()));
    finish(received);
    CHECK(theirs == mine);
    const auto sent = comm.post_send(buffer_of(mine), left, i, soon());
    comm.engine().drive(sent);
    finish(comm.post_recv(buffer_of(theirs), kAnySource, i, soon()));
    sent->work.wait(soon());
  }
}

// Each of three ranks runs `body(a, b)` with two groups of the same ranks.
template <class Body>
void run_two_groups(Body body) {
  const Token first = fresh_token(), second = fresh_token();
  run_ranks(3, [&](int rank) {
    const auto tuning = [] { return Tuning::for_ranks(3); };
    Communicator a(membership(rank, 3), first, tuning);
    Communicator b(membership(rank, 3), second, tuning);
    body(a, b);
  });
}

void test_two_groups_and_messages_at_once() {
  run_two_groups([](Communicator& a, Communicator& b) {
    std::thread messages_of_a([&] { pass_messages(a, 100); });
    std::thread messages_of_b([&] { pass_messages(b, 100); });
    std::thread collectives_of_b([&] {
      for (int i = 0; i < 200; ++i) b.run(barrier(), soon());
    });
    std::vector<float> data(5000, 1);
    const Buffer buffer = buffer_of(data);
    for (int i = 0; i < 200; ++i) {
      const auto average = all_reduce(buffer, buffer, ReduceOp::Avg, 1);
      if (i % 3 == 0)
        a.post(average, soon().deadline)->wait(soon());
      else
        a.run(average, soon());
    }
    messages_of_a.join();
    messages_of_b.join();
    collectives_of_b.join();
    CHECK(data[4999] == 1);
    a.close(soon());
    b.close(soon());
  });
}

void test_two_groups_at_once() {
  run_two_groups([](Communicator& a, Communicator& b) {
    std::thread other([&] {
      for (int i = 0; i < 200; ++i) b.run(barrier(), soon());
    });
    std::vector<float> data(5000, 1);
    const Buffer buffer = buffer_of(data);
    for (int i = 0; i < 200; ++i)
      a.run(all_reduce(buffer, buffer, ReduceOp::Avg, 1), soon());
    other.join();
    CHECK(data[4999] == 1);
  });
}

void test_shared_array(int size) {
  std::vector<std::shared_ptr<SharedArray>> kept(static_cast<std::size_t>(size));
  run_communicators(size, [&](Communicator& comm) {
    for (int round = 0; round < 3; ++round) {
      const auto array = comm.empty_shared(DType::Float32, {300, 100}, soon());
      CHECK(array->num_bytes() == 120000);
      auto* floats = reinterpret_cast<float*>(array->data());
      CHECK(std::all_of(floats, floats + 30000, [](float x) { return x == 0; }));
      std::fill_n(floats, 30000, static_cast<float>(comm.rank()));
      const Buffer buffer = {floats, DType::Float32, 30000, {}, 0};
      comm.run(all_reduce(buffer, buffer, ReduceOp::Max, 1), soon());
      CHECK(floats[0] == static_cast<float>(size - 1) && floats[29999] == floats[0]);
      floats[7] = 100.0f + static_cast<float>(comm.rank());
      comm.run(barrier(), soon());
      const int next = (comm.rank() + 1) % size;
      const auto* theirs = reinterpret_cast<float*>(comm.peer_data(buffer, next));
      CHECK(theirs[7] == 100.0f + static_cast<float>(next));
      comm.run(barrier(), soon());
      kept[static_cast<std::size_t>(comm.rank())] = array;
    }
  });
  for (int rank = 0; rank < size; ++rank) {  // outlives the group
    const auto& array = kept[static_cast<std::size_t>(rank)];
    CHECK(reinterpret_cast<float*>(array->data())[7] == 100.0f + float(rank));
  }
}

void test_shared_array_that_cannot_be_made() {
  run_communicators(3, [&](Communicator& comm) {
    const Error none = error_of(
        [&] { comm.empty_shared(DType::UInt8, {std::size_t{1} << 50}, soon()); });
    CHECK(none.kind() == ErrorKind::Backend);
    CHECK(has(none, "rank 0: needs 3145728.0 GiB"));
    const auto too_large = {std::size_t{1} << 40, std::size_t{1} << 40};
    const Error never =
        error_of([&] { comm.empty_shared(DType::UInt8, too_large, soon()); });
    CHECK(never.kind() == ErrorKind::Value);
    const std::size_t count = comm.rank() == 1 ? 3 : 4;
    const Error unlike =
        error_of([&] { comm.empty_shared(DType::Float32, {count}, soon()); });
    CHECK(unlike.kind() == ErrorKind::Mismatch);
    CHECK(comm.empty_shared(DType::Float32, {0}, soon())->num_bytes() == 0);
    std::vector<float> own(1);
    CHECK(error_of([&] { comm.peer_data(buffer_of(own), 0); }).kind() ==
          ErrorKind::Value);
  });
}

}  // namespace

int main() {
  for (const int size : {1, 2, 3, 5}) {
    test_run(size);
    test_post_and_run_keep_their_order(size);
    test_shared_array(size);
  }
  test_callback_runs_once_done();
  test_what_nobody_waits_for_can_be_hurried();
  test_a_postponed_operation_is_left_to_its_waiter();
  test_postponed_operations_hold_nobody_up();
  test_wait_that_expires_leaves_the_operation_running();
  test_a_wait_with_a_limit_that_ends_before_the_peers_come();
  test_a_wait_that_is_interrupted_before_the_peers_come();
  test_what_an_interrupted_wait_leaves_is_done_while_nobody_waits();
  test_a_callback_may_wait_for_another_operation();
  test_operations_are_numbered_alike();
  test_arguments();
  test_two_groups_at_once();
  test_shared_array_that_cannot_be_made();
  test_two_groups_and_messages_at_once();
}
