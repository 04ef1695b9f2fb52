// How communicators end: closed, aborted, broken, or left by the other ranks.
#include <algorithm>
#include <functional>
#include <string>

#include "allhands/base/error.hpp"
#include "allhands/comm/communicator.hpp"
#include "communicators.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

// A callback is refused what would wait for it, whichever thread runs it.
void test_a_callback_cannot_close_its_group() {
  std::atomic<int> num_watched = 0;
  run_communicators(2, [&](Communicator& comm) {
    comm.run(barrier(), soon());
    for (const int round : {1, 2}) {
      if (comm.rank() == 1) {  // comes when the other one's callback is there
        while (num_watched != round) std::this_thread::yield();
        comm.run(barrier(), soon());
        continue;
      }
      std::atomic<int> num_refused = 0;
      const auto work = comm.post(barrier(), soon().deadline);
      work->on_done([&] {
        const Error error = error_of([&] { comm.close(soon()); });
        num_refused += error.kind() == ErrorKind::Unsupported;
      });
      num_watched = round;
      if (round == 1) comm.wait(*work, without_limit());
      while (num_refused == 0) std::this_thread::yield();
      CHECK(work->is_completed());
    }
    comm.run(barrier(), soon());
  });
}

// Of a message that ends only as the group closes.
void test_a_callback_may_call_while_the_group_closes() {
  run_communicators(2, [&](Communicator& comm) {
    comm.run(barrier(), soon());
    std::vector<float> data(1);
    const Buffer buffer = buffer_of(data);
    std::atomic<int> num_refused = 0;
    const auto received = comm.post_recv(buffer, 1 - comm.rank(), 0, soon());
    received->work.on_done([&] {
      comm.fail(Error(ErrorKind::Backend, "the message did not come"));
      try {
        comm.run(barrier(), soon());
      } catch (const Error&) {
        ++num_refused;
      }
    });
    comm.close({Deadline::after(std::chrono::milliseconds(10))});
    CHECK(num_refused == 1);
  });
}

void test_several_threads_close_at_once() {
  run_communicators(2, [&](Communicator& comm) {
    std::vector<float> data = {1};
    const Buffer buffer = buffer_of(data);
    const auto work =
        comm.post(all_reduce(buffer, buffer, ReduceOp::Sum, 1), soon().deadline);
    std::thread other([&] { comm.close(soon()); });
    comm.close(soon());
    other.join();
    CHECK(work->is_completed() && data[0] == 2);
  });
}

// As a handler of a signal may that comes while the group closes.
void test_an_interrupt_may_close_the_group_that_closes() {
  run_communicators(2, [&](Communicator& comm) {
    comm.run(barrier(), soon());
    static std::atomic<bool> is_closed;
    if (comm.rank() == 1) {
      while (!is_closed) std::this_thread::yield();
      return;
    }
    static Communicator* closing;
    static std::atomic<int> num_closed;
    closing = &comm;
    const auto work = comm.post(barrier(), soon().deadline);
    comm.close({Deadline::after(std::chrono::milliseconds(300)), [] {
                  if (num_closed++ == 0)
                    closing->close({Deadline::after(std::chrono::milliseconds(10))});
                  return false;
                }});
    is_closed = true;
    CHECK(num_closed > 0 && work->is_completed() && work->error());
  });
}

void test_close_ends_what_is_queued() {
  run_communicators(2, [&](Communicator& comm) {
    if (comm.rank() == 1) return;
    const auto work = comm.post(barrier(), soon().deadline);
    comm.close({Deadline::after(std::chrono::milliseconds(10))});
    CHECK(work->is_completed() && work->error());
    CHECK_THROWS(comm.run(barrier(), soon()), Error);
    CHECK_THROWS(comm.post(barrier(), soon().deadline), Error);
  });
}

void test_abort_reaches_every_rank() {
  run_communicators(3, [&](Communicator& comm) {
    comm.run(barrier(), soon());
    if (comm.rank() == 1) {
      comm.fail(Error(ErrorKind::Backend, "no more disk"));
      return;
    }
    try {
      comm.run(barrier(), soon());
      CHECK(!"it did not throw");
    } catch (const Error& error) {
      CHECK(has(error, "no more disk"));
    }
  });
}

// What broke it for collectives broke it for messages, too, and the first failure
// stays.
void test_a_broken_group_refuses_every_call() {
  std::atomic<bool> has_failed = false;
  run_communicators(2, [&](Communicator& comm) {
    comm.run(barrier(), soon());
    if (comm.rank() == 1)
      while (!has_failed) std::this_thread::yield();
    const auto limits =
        comm.rank() == 0 ? within(std::chrono::milliseconds(20)) : soon();
    const Error first = error_of([&] { comm.run(barrier(), limits); });
    CHECK(first.kind() == ErrorKind::Timeout && has(first, "barrier() #2"));
    has_failed = true;
    comm.fail(Error(ErrorKind::Backend, "the second"));
    std::vector<float> data = {1};
    const Buffer buffer = buffer_of(data);
    const int peer = 1 - comm.rank();
    const auto is_refused = [&](auto call) {
      const Error error = error_of(call);
      CHECK(error.kind() == ErrorKind::Timeout && error.ranks() == std::vector<int>{1});
      CHECK(has(error, "group 'test' is broken since: barrier() #2"));
    };
    is_refused([&] { comm.run(barrier(), soon()); });
    is_refused([&] { comm.post(barrier(), soon().deadline)->wait(soon()); });
    is_refused([&] { comm.empty_shared(DType::Float32, {1}, soon()); });
    is_refused([&] { comm.send(buffer, peer, 0, soon()); });
    is_refused([&] { comm.recv(buffer, peer, 0, soon()); });
    is_refused([&] { comm.post_send(buffer, peer, 0, soon()); });
    is_refused([&] { comm.post_recv(buffer, peer, 0, soon()); });
  });
}

// A rank that waits for a message learns why none comes.
void test_a_collective_that_fails_ends_receives() {
  run_communicators(3, [&](Communicator& comm) {
    std::vector<float> data = {1};
    comm.run(barrier(), soon());
    if (comm.rank() == 2) {
      const Error error = error_of([&] { comm.recv(buffer_of(data), 0, 0, soon()); });
      CHECK(error.kind() == ErrorKind::Timeout && !error.ranks().empty());
      CHECK(has(error, "group 'test' is broken since: rank "));
      return;
    }
    error_of([&] { comm.run(barrier(), within(std::chrono::milliseconds(20))); });
  });
}

// A rank that did not wait for a message hears of its loss when it leaves.
void test_a_broken_group_tells_of_messages_that_nobody_took() {
  std::atomic<bool> is_sent = false;
  run_communicators(2, [&](Communicator& comm) {
    std::vector<float> data(1'000'000);
    comm.run(barrier(), soon());
    if (comm.rank() == 1) {
      while (!is_sent) std::this_thread::yield();
      error_of([&] { comm.run(barrier(), within(std::chrono::milliseconds(20))); });
      return;
    }
    const auto sent = comm.post_send(buffer_of(data), 1, 0, soon());
    comm.engine().drive(sent);
    is_sent = true;
    while (!sent->work.is_completed()) std::this_thread::yield();
    CHECK(error_of([&] { comm.close(soon()); }).kind() == ErrorKind::Timeout);
  });
}

// Runs body(comm) as rank 0 of a group that rank 1 has left without using it; rank 1's
// process lives on.
template <class Body>
void run_in_a_group_left_unused(Body body) {
  const Token token = fresh_token();
  const auto memory = FlightMemory::create();
  const auto make = [&](int rank) {
    return std::make_unique<Communicator>(
        membership(rank, 2), token, [] { return Tuning::for_ranks(2); }, LateNotice{},
        FlightRecorder::kLength, Communicator::ReachOthers{}, memory);
  };
  make(1)->close(soon());
  body(*make(0));
}

void test_a_rank_that_left_before_anybody_came_is_named() {
  const std::vector<int> rank_1 = {1};
  run_in_a_group_left_unused([&](Communicator& comm) {
    const Error error = error_of([&] { comm.run(barrier(), soon()); });
    CHECK(error.kind() == ErrorKind::RankFailed && error.ranks() == rank_1);
    CHECK(has(error, "left the group"));
  });
  run_in_a_group_left_unused([&](Communicator& comm) {
    std::vector<float> data(3);
    const Error error = error_of([&] { comm.recv(buffer_of(data), 1, 0, soon()); });
    CHECK(error.kind() == ErrorKind::RankFailed && error.ranks() == rank_1);
  });
}

}  // namespace

int main() {
  test_a_callback_cannot_close_its_group();
  test_a_callback_may_call_while_the_group_closes();
  test_several_threads_close_at_once();
  test_an_interrupt_may_close_the_group_that_closes();
  test_close_ends_what_is_queued();
  test_abort_reaches_every_rank();
  test_a_broken_group_refuses_every_call();
  test_a_collective_that_fails_ends_receives();
  test_a_broken_group_tells_of_messages_that_nobody_took();
  test_a_rank_that_left_before_anybody_came_is_named();
}
