// Messages that fail, are refused or given up, and messages of ranks that left.
#include <algorithm>
#include <atomic>
#include <optional>
#include <string>

#include "allhands/base/error.hpp"
#include "engines.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

// What a receive of a collective's expected goes nowhere once that has failed.
void test_a_receive_that_a_refusal_ended_gets_nothing() {
  run_engines(2, [&](ProgressEngine& engine, int rank) {
    const Tag first(0, Context::Collectives), second(1, Context::Collectives);
    constexpr std::size_t kCount = 3000;
    std::vector<float> small(rank == 0 ? 2 : 4, 1), large(kCount, 1), other(kCount);
    if (rank == 1) {
      const auto refused =
          engine.post_recv(buffer_of(small), 0, first, soon().deadline);
      CHECK(error_of([&] { wait(engine, refused, soon()); }).kind() ==
            ErrorKind::Mismatch);
      recv(engine, small, 0, 5);  // it has been told
      wait(engine, engine.post_send(buffer_of(large), 0, second, soon().deadline),
           soon());
      return;
    }
    const auto failed = engine.post_recv(buffer_of(large), 1, second, soon().deadline);
    wait(engine, engine.post_send(buffer_of(small), 1, first, soon().deadline), soon());
    CHECK(error_of([&] { wait(engine, failed, soon()); }).kind() ==
          ErrorKind::Mismatch);
    large.assign(kCount, 7);
    const auto received =
        engine.post_recv(buffer_of(other), 1, second, soon().deadline);
    std::vector<float> go(4);
    send(engine, go, 1, 5);
    wait(engine, received, soon());
    CHECK(other == std::vector<float>(kCount, 1));
    CHECK(large == std::vector<float>(kCount, 7));
  });
}

// It never receives, so only its sends can find out.
void test_a_rank_that_only_sends_learns_of_a_refusal() {
  std::atomic<bool> is_sent = false, is_refused = false;
  run_engines(2, [&](ProgressEngine& engine, int rank) {
    std::vector<float> data(rank == 0 ? 2 : 4, 1);
    if (rank == 1) {
      while (!is_sent) std::this_thread::yield();
      CHECK(error_of([&] { recv(engine, data, 0); }).kind() == ErrorKind::Mismatch);
      is_refused = true;
      data.resize(2);
      recv(engine, data, 0, 1);
      return;
    }
    send(engine, data, 1);
    is_sent = true;
    while (!is_refused) std::this_thread::yield();
    send(engine, data, 1, 1);  // gone before it looks
    const Error error = error_of([&] {
      while (true) send(engine, data, 1, 2);  // it may be on its way still
    });
    CHECK(error.kind() == ErrorKind::Mismatch);
    CHECK(has(error, "count 4"));
  });
}

// What the other one said before it left counts more than that it left.
void test_a_refusal_is_told_though_its_rank_has_left() {
  std::atomic<bool> is_sent = false, has_left = false;
  run_engines(2, [&](ProgressEngine& engine, int rank) {
    std::vector<float> data(rank == 0 ? 2 : 4, 1);
    if (rank == 1) {
      while (!is_sent) std::this_thread::yield();
      CHECK(error_of([&] { recv(engine, data, 0); }).kind() == ErrorKind::Mismatch);
      engine.leave(Error(ErrorKind::Backend, "over"));
      has_left = true;
      has_left.notify_one();
      return;
    }
    send(engine, data, 1);
    is_sent = true;
    while (!has_left) std::this_thread::yield();
    const Error error = error_of([&] {
      while (true) send(engine, data, 1);  // it may be on its way still
    });
    CHECK(error.kind() == ErrorKind::Mismatch);
  });
}

void test_probes_of_who_left() {
  run_engines(2, [](ProgressEngine& engine, int rank) {
    if (rank == 1) return engine.leave(Error(ErrorKind::Backend, "left"));
    const auto is_told = [&](auto look) {
      try {
        look();
      } catch (const Error& error) {
        CHECK(error.kind() == ErrorKind::RankFailed);
        CHECK(error.ranks() == std::vector<int>{1});
        return true;
      }
      return false;
    };
    CHECK(is_told([&] { wait(engine, post_probe(engine, 1, kAnyTag), soon()); }));
    CHECK(is_told([&] {
      while (engine.probe_now(kAnySource, 3) == nullptr) continue;
    }));
  });
}

// Nobody has waited for the send until then.
void test_a_send_has_succeeded_if_its_receiver_left_with_it() {
  std::atomic<bool> has_left = false;
  run_engines(2, [&has_left](ProgressEngine& engine, int rank) {
    std::vector<float> data = values(0, 2000);
    send(engine, data, 1 - rank);
    recv(engine, data, 1 - rank);
    if (rank == 1) {
      recv(engine, data, 0);
      engine.leave(Error(ErrorKind::Backend, "bye"));
      has_left = true;
      has_left.notify_one();
      return;
    }
    const auto sent = engine.post_send(buffer_of(data), 1, 0, soon().deadline);
    has_left.wait(false);
    const auto probe = [&] {
      while (engine.probe_now(1, 0) == nullptr) continue;
    };
    CHECK(error_of(probe).kind() == ErrorKind::RankFailed);
    CHECK(sent->work.is_completed() && sent->work.outcome() == nullptr);
  });
}

void test_mismatch_is_told_to_both(std::size_t sent_count) {
  run_engines(2, [&](ProgressEngine& engine, int rank) {
    std::vector<float> data(rank == 0 ? sent_count : 4, 1);
    if (rank == 1) {
      const Error error = error_of([&] { recv(engine, data, 0); });
      CHECK(error.kind() == ErrorKind::Mismatch);
      CHECK(are_all(1, data));
      recv(engine, data, 0, 1);
      return;
    }
    // An eager send has returned by then: the next receive from this peer tells.
    const Error error = error_of([&] {
      send(engine, data, 1);
      std::vector<float> in(1);
      recv(engine, in, 1, 99);
    });
    CHECK(error.kind() == ErrorKind::Mismatch);
    CHECK(has(error, "count 4"));
    std::vector<float> fitting(4);
    send(engine, fitting, 1, 1);
  });
}

void test_recv_that_expires_leaves_the_group_usable() {
  run_engines(2, [](ProgressEngine& engine, int rank) {
    std::vector<float> data(3, static_cast<float>(rank));
    if (rank == 0) {
      const auto receive = engine.post_recv(buffer_of(data), 1, 0, soon().deadline);
      const Error error = error_of(
          [&] { wait(engine, receive, within(std::chrono::milliseconds(20))); });
      CHECK(error.kind() == ErrorKind::Timeout);
      CHECK(error.ranks() == std::vector<int>{1});
      send(engine, data, 1);
    } else {
      recv(engine, data, 0);
      CHECK(data[0] == 0);
    }
  });
}

void test_a_send_that_expires_is_withdrawn() {
  run_engines(2, [](ProgressEngine& engine, int rank) {
    std::vector<float> data(100000, 1);
    if (rank == 0) {
      const auto sent = engine.post_send(buffer_of(data), 1, 0, soon().deadline);
      const Error error =
          error_of([&] { wait(engine, sent, within(std::chrono::milliseconds(20))); });
      CHECK(error.kind() == ErrorKind::Timeout);
      data.assign(100000, 2);
      send(engine, data, 1, 1);
      send(engine, data, 1, 0);
    } else {
      recv(engine, data, 0, 1);
      recv(engine, data, 0, 0);
      CHECK(data[99999] == 2);
    }
  });
}

void test_a_peer_that_left_is_named() {
  run_engines(3, [](ProgressEngine& engine, int rank) {
    std::vector<float> data(2, 1);
    if (rank == 1) {
      send(engine, data, 0);
      return engine.leave(Error(ErrorKind::Backend, "bye"));
    }
    if (rank == 2) return;
    recv(engine, data, 1);  // what it sent before it left still arrives
    const Error error = error_of([&] { recv(engine, data, 1); });
    CHECK(error.kind() == ErrorKind::RankFailed);
    CHECK(error.ranks() == std::vector<int>{1});
    CHECK(error_of([&] { send(engine, data, 1); }).kind() == ErrorKind::RankFailed);
  });
}

// It sends and leaves between the last look for messages and the look whether it is
// gone.
void test_what_a_peer_sent_right_before_it_left_arrives() {
  Loopback group(2);
  ProgressEngine mine(group.transport(0), membership(0, 2), tuning);
  ProgressEngine theirs(group.transport(1), membership(1, 2), tuning);
  std::vector<float> data = {1, 2}, got(2);
  const TransferPtr received = mine.post_recv(buffer_of(got), 1, 0, soon().deadline);
  group.before_next_look([&] {
    send(theirs, data, 0);
    theirs.leave(Error(ErrorKind::Backend, "bye"));
  });
  wait(mine, received, soon());
  CHECK(got == data);
}

// It receives the last message and leaves just as this rank asks who is gone.
void test_a_message_that_was_received_at_the_end_is_not_lost() {
  Loopback group(2);
  ProgressEngine mine(group.transport(0), membership(0, 2), tuning);
  ProgressEngine theirs(group.transport(1), membership(1, 2), tuning);
  std::vector<float> data = values(0, 10), got(10);
  send(mine, data, 1);
  group.before_next_look([&] {
    recv(theirs, got, 0);
    theirs.leave(Error(ErrorKind::Backend, "bye"));
  });
  mine.flush(soon());
  CHECK(got == data);
}

// Nobody receives: the sender is held once the ring is full, and nothing is lost.
void test_unmatched_sends_are_bounded() {
  std::atomic<int> num_sent = -1;
  run_engines(2, [&](ProgressEngine& engine, int rank) {
    std::vector<float> data(1000, 1);
    if (rank == 0) {
      int sent = 0;
      const Error error = error_of([&] {
        for (; sent < 1000; ++sent)
          wait(engine, engine.post_send(buffer_of(data), 1, 3, soon().deadline),
               within(std::chrono::milliseconds(200)));
      });
      CHECK(error.kind() == ErrorKind::Timeout);
      CHECK(sent > 10);
      num_sent = sent;
    } else {
      while (num_sent < 0) std::this_thread::yield();
      for (int i = 0; i < num_sent; ++i) recv(engine, data, 0, 3);
    }
  });
}

// However far the peer has come with the message, it is the whole one or none.
void test_a_large_send_that_is_given_up_does_not_arrive_in_part() {
  constexpr std::size_t kCount = 100'000;
  constexpr int kRounds = 50;
  run_engines(2, [&](ProgressEngine& engine, int rank) {
    std::vector<float> data(kCount), ready(1);
    for (int i = 0; i < kRounds; ++i) {
      data.assign(kCount, rank == 0 ? 1.0f : 0.0f);
      if (rank == 0) {
        const auto sent = engine.post_send(buffer_of(data), 1, i, soon().deadline);
        send(engine, ready, 1, kRounds + i);
        recv(engine, ready, 1, kRounds + i);
        std::this_thread::sleep_for(std::chrono::microseconds(10 * i));  // any moment
        engine.give_up({&sent, 1}, Error(ErrorKind::Timeout, "enough"));
        data.assign(kCount, 2);
      } else {
        recv(engine, ready, 0, kRounds + i);
        // Posted before the sender may give up: later there would be nothing to match.
        const auto received = engine.post_recv(buffer_of(data), 0, i, soon().deadline);
        send(engine, ready, 0, kRounds + i);
        try {
          engine.wait(received, soon(), ProgressEngine::AtEnd::GiveUp);
        } catch (const Error& error) {
          CHECK(has(error, "gave it up"));
          continue;
        }
        CHECK(are_all(1, data));
      }
    }
  });
}

// A rank whose group breaks gives up its messages before it tells that it leaves.
// Returns whether the receive failed: it may have the whole message already.
bool is_receive_ended_by_broken_group() {
  const MakeTransport make = kind->make_group(2, tuning);
  std::atomic<bool> is_offered = false, is_posted = false, is_broken = false;
  std::atomic<bool> is_given_up = false, is_told = false, has_failed = false;
  const auto failure = [&]() -> std::optional<Error> {
    if (!is_broken) return std::nullopt;
    return Error(ErrorKind::RankFailed, "rank 7 died", {7});
  };
  run_ranks(2, [&](int rank) {
    ProgressEngine engine(make(rank), membership(rank, 2), tuning,
                          {.failure = failure});
    std::vector<float> data(100'000, rank == 0 ? 1.0f : 0.0f);
    if (rank == 0) {
      const auto sent = engine.post_send(buffer_of(data), 1, 0, soon().deadline);
      is_offered = true;
      while (!is_posted) std::this_thread::yield();
      is_broken = true;
      engine.give_up({&sent, 1}, Error(ErrorKind::Backend, "the group is broken"));
      is_given_up = true;
      while (!is_told) std::this_thread::yield();
      return;
    }
    while (!is_offered) std::this_thread::yield();
    const auto received = engine.post_recv(buffer_of(data), 0, 0, soon().deadline);
    is_posted = true;
    while (!is_given_up) std::this_thread::yield();
    try {
      wait(engine, received, soon());
      CHECK(are_all(1, data));
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::RankFailed);
      CHECK(has(error, "recv(float32"));
      CHECK(has(error, "rank 7 died"));
      has_failed = true;
    }
    is_told = true;
  });
  return has_failed;
}

void test_a_message_that_a_broken_group_ended_is_told_as_that() {
  int num_failed = 0;
  for (int i = 0; i < 20; ++i) num_failed += is_receive_ended_by_broken_group();
  CHECK(num_failed > 0);
}

// Nobody writes to the array of a receive that has raised.
void test_a_large_recv_that_is_given_up_leaves_its_array_alone() {
  constexpr std::size_t kCount = 100'000;
  constexpr int kRounds = 50;
  run_engines(2, [&](ProgressEngine& engine, int rank) {
    std::vector<float> data(kCount), ready(1);
    for (int i = 0; i < kRounds; ++i) {
      data.assign(kCount, 1);
      if (rank == 0) {
        recv(engine, ready, 1, kRounds + i);
        send(engine, data, 1, i);
        send(engine, ready, 1, kRounds + i);
      } else {
        const auto receive = engine.post_recv(buffer_of(data), 0, i, soon().deadline);
        engine.drive(receive);
        send(engine, ready, 0, kRounds + i);
        std::this_thread::sleep_for(std::chrono::microseconds(5 * i));  // any moment
        engine.give_up({&receive, 1}, Error(ErrorKind::Timeout, "enough"));
        data.assign(kCount, 3);
        if (receive->work.error() != nullptr && receive->source == kAnySource)
          recv(engine, data, 0, i);  // given up before it was matched
        const float last = data.back();
        recv(engine, ready, 0, kRounds + i);  // the sender is past it
        CHECK(are_all(last, data));
      }
    }
  });
}

// A collective posts many, which have no numbers of their own: those that arrive are
// the first ones.
void test_what_is_given_up_together_arrives_up_to_some_message() {
  constexpr std::size_t kMessages = 150, kCount = 16'000;
  for (int round = 0; round < 3; ++round)
    run_engines(2, [&](ProgressEngine& engine, int rank) {
      const Tag tag = {round, Context::Collectives};
      std::vector<std::vector<float>> data;
      std::vector<Buffer> buffers;
      for (std::size_t i = 0; i < kMessages; ++i)
        data.push_back(rank == 0 ? values(static_cast<int>(i), kCount)
                                 : std::vector<float>(kCount, -1));
      for (auto& each : data) buffers.push_back(buffer_of(each));
      const Error why(ErrorKind::Timeout, "enough");
      std::vector<float> go_on = {0};
      if (rank == 0) {
        const auto sends = engine.post_sends(buffers, 1, tag, soon().deadline);
        wait(engine, sends[kMessages / 10], soon());
        engine.give_up(sends, why);
        for (auto& each : data) std::ranges::fill(each, -2.0f);
        return send(engine, go_on, 1);
      }
      std::vector<TransferPtr> receives;
      for (const Buffer& each : buffers)
        receives.push_back(engine.post_recv(each, 0, tag, soon().deadline));
      recv(engine, go_on, 0);
      std::size_t num_here = 0;
      while (num_here < kMessages && receives[num_here]->work.is_completed() &&
             receives[num_here]->work.outcome() == nullptr)
        ++num_here;
      engine.give_up(receives, why);
      for (std::size_t i = 0; i < kMessages; ++i)
        CHECK(i < num_here ? are_values(static_cast<int>(i), data[i])
                           : receives[i]->work.outcome() != nullptr);
    });
}

void test_failures_of_messages() {
  test_probes_of_who_left();
  test_a_send_has_succeeded_if_its_receiver_left_with_it();
  test_mismatch_is_told_to_both(2);
  test_mismatch_is_told_to_both(50000);
  test_a_send_that_expires_is_withdrawn();
  test_a_large_send_that_is_given_up_does_not_arrive_in_part();
  test_a_message_that_a_broken_group_ended_is_told_as_that();
  test_a_large_recv_that_is_given_up_leaves_its_array_alone();
  test_what_is_given_up_together_arrives_up_to_some_message();
}

void test_failures_of_groups() {
  test_a_receive_that_a_refusal_ended_gets_nothing();
  test_a_rank_that_only_sends_learns_of_a_refusal();
  test_a_refusal_is_told_though_its_rank_has_left();
  test_recv_that_expires_leaves_the_group_usable();
  test_a_peer_that_left_is_named();
  test_unmatched_sends_are_bounded();
}

}  // namespace

int main() {
  by_every_way(test_failures_of_messages);
  for (const TransportKind& each : all_transports()) {
    kind = &each;
    test_failures_of_groups();
  }
  test_what_a_peer_sent_right_before_it_left_arrives();
  test_a_message_that_was_received_at_the_end_is_not_lost();
}
