// Point-to-point messages, ranks as threads over one mapping.
#include <algorithm>
#include <atomic>

#include "allhands/engine/progress_engine.hpp"
#include "engines.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

// Empty, in the header's line, eager, just not eager, many pieces or slices.
const std::vector<std::size_t> kCounts = {0, 1, 6, 7, 8192, 8193, 100000, 300001};

// The memory of a whole group in one mapping, so that the thread sanitizer sees both.
void test_collectives_and_messages_at_once(int size) {
  const std::size_t arena_bytes = Layout(size).total_bytes();
  const auto memory =
      SharedMemory::create(arena_bytes + ShmTransport::memory_bytes(size));
  Arena::prepare(*memory, size, Tuning::for_ranks(size));
  run_ranks(size, [&](int rank) {
    Arena arena(memory, membership(rank, size));
    ProgressEngine engine(
        std::make_unique<ShmTransport>(memory, memory->data() + arena_bytes,
                                       membership(rank, size), tuning),
        membership(rank, size), tuning);
    std::thread messages([&] {
      std::vector<float> mine(3000, static_cast<float>(rank)), theirs(3000);
      const int right = (rank + 1) % size, left = (rank + size - 1) % size;
      for (int i = 0; i < 50; ++i) {
        const auto sent = engine.post_send(buffer_of(mine), right, i, soon().deadline);
        engine.drive(sent);
        const auto received =
            engine.post_recv(buffer_of(theirs), left, i, soon().deadline);
        engine.wait(received, soon(), ProgressEngine::AtEnd::GiveUp);
        CHECK(theirs[2999] == static_cast<float>(left));
        engine.wait(sent, soon(), ProgressEngine::AtEnd::GiveUp);
      }
    });
    std::vector<float> data(20000, 1);
    for (int i = 0; i < 50; ++i)
      all_reduce(arena, buffer_of(data), buffer_of(data), ReduceOp::Max, 1, soon());
    messages.join();
    engine.flush(soon());
    CHECK(data[19999] == 1);
  });
}

void test_ring_around(int size) {
  run_engines(size, [&](ProgressEngine& engine, int rank) {
    const int right = (rank + 1) % size, left = (rank + size - 1) % size;
    std::vector<float> out = values(rank, kCounts.back()), in(kCounts.back());
    for (int round = 0; round < 3; ++round) {
      std::fill(in.begin(), in.end(), -1.0f);
      for (const std::size_t count : kCounts) {  // the larger ones later
        const Buffer from = buffer_of(out).slice(0, count);
        const Buffer to = buffer_of(in).slice(0, count);
        const auto receive = engine.post_recv(to, left, 7, soon().deadline);
        const auto sent = engine.post_send(from, right, 7, soon().deadline);
        wait(engine, sent, soon());
        wait(engine, receive, soon());
        CHECK(are_values(left, {in.data(), count}));
        CHECK(count == in.size() || in[count] == -1);
        CHECK(receive->source == left);
      }
    }
  });
}

void test_tags_match_in_any_order() {
  run_engines(2, [](ProgressEngine& engine, int rank) {
    const int peer = 1 - rank;
    std::vector<std::vector<float>> data;
    for (const std::size_t count : kCounts)
      data.push_back(rank == 0 ? values(1, count) : std::vector<float>(count));
    std::vector<TransferPtr> transfers;
    for (std::size_t i = 0; i < data.size(); ++i) {
      const std::size_t tag = rank == 0 ? i : data.size() - 1 - i;
      const Buffer buffer = buffer_of(data[tag]);
      const auto t = static_cast<std::int64_t>(tag);
      transfers.push_back(rank == 0
                              ? engine.post_send(buffer, peer, t, soon().deadline)
                              : engine.post_recv(buffer, peer, t, soon().deadline));
    }
    for (const TransferPtr& transfer : transfers) wait(engine, transfer, soon());
    for (std::size_t i = 0; i < data.size(); ++i) CHECK(are_values(1, data[i]));
  });
}

// Large and small, sent in another order than they are received.
void test_contexts_are_apart() {
  run_engines(2, [](ProgressEngine& engine, int rank) {
    const int peer = 1 - rank;
    for (const std::size_t count : {5, 100000}) {
      const Tag apart(7, Context::Collectives);
      std::vector<float> plain = values(1, count), other = values(2, count);
      if (rank == 0) {
        const auto first = engine.post_send(buffer_of(plain), peer, 7, soon().deadline);
        engine.send(buffer_of(other), peer, apart, soon());
        wait(engine, first, soon());
        continue;
      }
      std::fill(plain.begin(), plain.end(), 0.0f);
      std::fill(other.begin(), other.end(), 0.0f);
      engine.recv(buffer_of(other), peer, apart, soon());
      engine.recv(buffer_of(plain), kAnySource, 7, soon());
      CHECK(are_values(1, plain) && are_values(2, other));
    }
  });
}

// A blocking receive that could take the next message leaves it to those before it, and
// takes what came before that.
void test_blocking_receives_do_not_overtake() {
  run_engines(2, [](ProgressEngine& engine, int rank) {
    for (int round = 0; round < 200; ++round) {
      std::vector<float> data(1);
      if (rank == 0) {
        for (const int tag : {0, 1, 0, 0, 2}) {
          send(engine, data, 1, tag);
          ++data[0];
        }
        recv(engine, data, 1);
      } else {
        const auto value_of = [&](int tag) {
          recv(engine, data, 0, tag);
          return data[0];
        };
        CHECK(value_of(1) == 1);  // the first of tag 0 is kept
        std::vector<float> second(1);
        CHECK(value_of(0) == 0);
        const auto posted = engine.post_recv(buffer_of(second), 0, 0, soon().deadline);
        CHECK(value_of(0) == 3);
        CHECK(value_of(2) == 4);
        wait(engine, posted, soon());
        CHECK(second[0] == 2);
        send(engine, data, 0);
      }
    }
  });
}

// Messages of one source and tag arrive in the order in which they were sent.
void test_order_is_kept() {
  run_engines(2, [](ProgressEngine& engine, int rank) {
    for (int i = 0; i < 2000; ++i) {
      const std::size_t count = i % 50 == 0 ? 5000 : 3;
      std::vector<float> data(count, rank == 0 ? static_cast<float>(i) : -1.0f);
      if (rank == 0)
        send(engine, data, 1);
      else
        recv(engine, data, 0);
      CHECK(data.back() == static_cast<float>(i));
    }
  });
}

// A send that could be written at once stays behind those that were posted before it,
// whatever these wait for, and so do the messages of ranks that always offer.
void test_blocking_sends_do_not_overtake() {
  constexpr std::size_t kMany = 200;
  run_engines(2, [](ProgressEngine& engine, int rank) {
    std::vector<std::vector<float>> data(kMany, std::vector<float>(2000));
    if (rank == 0) {
      std::vector<TransferPtr> posted;
      for (std::size_t i = 0; i < kMany; ++i) {
        data[i].assign(2000, static_cast<float>(i));
        posted.push_back(engine.post_send(buffer_of(data[i]), 1, 0, soon().deadline));
      }
      std::vector<float> last = {-1};
      send(engine, last, 1);
      for (const TransferPtr& each : posted) wait(engine, each, soon());
    } else {
      for (std::size_t i = 0; i < kMany; ++i) {
        recv(engine, data[0], 0);
        CHECK(data[0][1999] == static_cast<float>(i));
      }
      std::vector<float> last(1);
      recv(engine, last, 0);
      CHECK(last[0] == -1);
    }
  });
}

// Whoever waits, looks or is called back, and whenever, sees the end once.
void test_work_tells_everybody() {
  for (int round = 0; round < 200; ++round) {
    Work work;
    std::atomic<int> called = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] { work.on_done([&] { ++called; }); });
      threads.emplace_back([&] {
        CHECK(error_of([&] { work.wait(soon()); }).kind() == ErrorKind::Timeout);
      });
    }
    const Error error(ErrorKind::Timeout, "over");
    threads.emplace_back([&] { work.complete(std::make_exception_ptr(error)); });
    for (std::thread& thread : threads) thread.join();
    CHECK(work.is_completed() && work.error() != nullptr);
    CHECK(called == 3);
  }
}

void test_any_source() {
  run_engines(4, [](ProgressEngine& engine, int rank) {
    if (rank != 0) {
      std::vector<float> data(10, static_cast<float>(rank));
      return send(engine, data, 0, 5);
    }
    int sum = 0;
    for (int i = 0; i < 3; ++i) {
      std::vector<float> data(10);
      const int source = recv(engine, data, kAnySource, 5);
      CHECK(data[9] == static_cast<float>(source));
      sum += source;
    }
    CHECK(sum == 1 + 2 + 3);
  });
}

// Of every size, into an array that is larger; a receive for any tag gets none of the
// collectives', and none of the package's own.
void test_any_tag_and_what_came() {
  const int own_tag = -5;
  run_engines(2, [&](ProgressEngine& engine, int rank) {
    std::vector<float> own(1), shared(1);
    if (rank == 0) {
      std::vector<TransferPtr> sends;
      std::vector<std::vector<float>> data;
      for (const std::size_t count : kCounts) data.push_back(values(2, count));
      send(engine, own, 1, own_tag);
      engine.send(buffer_of(shared), 1, {0, Context::Collectives}, soon());
      int tag = 0;
      for (auto& each : data)
        sends.push_back(engine.post_send(buffer_of(each), 1, tag++, soon().deadline));
      for (const TransferPtr& sent : sends) wait(engine, sent, soon());
      recv(engine, own, 1);
      return;
    }
    for (std::size_t i = 0; i < kCounts.size(); ++i) {
      std::vector<float> in(kCounts.back() + 2, -1);
      const auto receive =
          engine.post_recv(buffer_of(in), i % 2 == 0 ? kAnySource : 0, kAnyTag,
                           soon().deadline, nullptr, Fit::UpTo);
      wait(engine, receive, soon());
      CHECK(receive->source == 0);
      CHECK(receive->came_tag == static_cast<int>(i));
      CHECK(receive->came_bytes == kCounts[i] * sizeof(float));
      CHECK(are_values(2, {in.data(), kCounts[i]}));
      CHECK(in[kCounts[i]] == -1);
    }
    CHECK(engine.probe_now(kAnySource, kAnyTag) == nullptr);
    send(engine, own, 0);
    recv(engine, own, 0, own_tag);
    engine.recv(buffer_of(shared), 0, {0, Context::Collectives}, soon());
  });
}

void test_probes_see_and_leave() {
  run_engines(2, [](ProgressEngine& engine, int rank) {
    for (const std::size_t count : kCounts) {
      std::vector<float> data = values(3, count), go(1);
      if (rank == 0) {
        recv(engine, go, 1, 9);
        send(engine, data, 1, 4);
        continue;
      }
      CHECK(engine.probe_now(kAnySource, kAnyTag) == nullptr);
      const auto other = post_probe(engine, 0, 5);
      const auto early = post_probe(engine, kAnySource, kAnyTag);
      const auto both = post_probe(engine, 0, 4);
      send(engine, go, 0, 9);
      wait(engine, early, soon());
      wait(engine, both, soon());
      const auto late = engine.probe_now(0, 4);
      for (const auto& probe : {early, both, late}) {
        CHECK(probe->source == 0);
        CHECK(probe->came_tag == 4);
        CHECK(probe->came_bytes == count * sizeof(float));
      }
      CHECK(!other->work.is_completed());
      engine.give_up({&other, 1}, Error(ErrorKind::Timeout, "enough"));
      std::vector<float> in(count);
      recv(engine, in, 0, 4);
      CHECK(are_values(3, in));
    }
  });
}

void test_driven_transfers_end_by_themselves() {
  run_engines(2, [](ProgressEngine& engine, int rank) {
    std::vector<float> out = values(rank, 50000), in(50000);
    for (int round = 0; round < 20; ++round) {
      std::fill(in.begin(), in.end(), -1.0f);
      const auto receive =
          engine.post_recv(buffer_of(in), 1 - rank, 0, soon().deadline);
      engine.drive(receive);
      const auto sent = engine.post_send(buffer_of(out), 1 - rank, 0, soon().deadline);
      engine.drive(sent);
      receive->work.wait(soon());
      sent->work.wait(soon());
      CHECK(are_values(1 - rank, in));
    }
  });
}

// Nobody waits for it, and no other thread needs to take a turn.
void test_a_small_driven_send_ends_at_once() {
  run_engines(2, [](ProgressEngine& engine, int rank) {
    std::vector<float> data = values(0, 2000);
    for (int round = 0; round < 20; ++round) {
      if (rank == 1) {
        recv(engine, data, 0);
        send(engine, data, 0);
        continue;
      }
      const auto sent = engine.post_send(buffer_of(data), 1, 0, soon().deadline);
      engine.drive(sent);
      // Before this, a connection has to be made.
      CHECK(round == 0 || sent->work.is_completed());
      recv(engine, data, 1);
    }
  });
}

void test_large_messages_wait_for_each_other() {
  constexpr std::size_t kCount = 30'000;
  constexpr int kMany = 20;
  run_engines(3, [&](ProgressEngine& engine, int rank) {
    std::vector<std::vector<float>> data;
    std::vector<TransferPtr> transfers;
    for (int i = 0; i < 2 * kMany; ++i) {
      const int peer = (rank + 1 + i % 2) % 3;
      data.push_back(values(rank + i / 2, kCount));
      data.push_back(std::vector<float>(kCount));
      transfers.push_back(
          engine.post_send(buffer_of(data[data.size() - 2]), peer, 0, soon().deadline));
      transfers.push_back(
          engine.post_recv(buffer_of(data.back()), peer, 0, soon().deadline));
    }
    for (const TransferPtr& transfer : transfers) wait(engine, transfer, soon());
    for (int i = 0; i < 2 * kMany; ++i) {
      const int peer = (rank + 1 + i % 2) % 3;
      CHECK(are_values(peer + i / 2, data[2 * static_cast<std::size_t>(i) + 1]));
    }
  });
}

// Rank 1 receives until its seat shows that it has yielded in a wait and got its
// message awake. Rank 0 lets it wait longer each time.
void test_who_waits_awake_takes_a_seat() {
  tuning.yields_per_look = 1;
  const auto memory = SharedMemory::create(ShmTransport::memory_bytes(2));
  run_ranks(2, [&](int rank) {
    ProgressEngine engine(std::make_unique<ShmTransport>(memory, memory->data(),
                                                         membership(rank, 2), tuning),
                          membership(rank, 2), tuning);
    const Seat& seat = MessageMemory(2).doorbell(memory->data(), 1).seat;
    std::vector<float> data(1), has_seat = {0};
    const Deadline last = Deadline::after(std::chrono::seconds(100));
    for (int pauses = 1; has_seat[0] == 0; pauses = pauses % 1000 + 1) {
      if (rank == 0) CHECK(!last.is_expired());
      if (rank == 0) {
        for (int i = 0; i < pauses; ++i) std::this_thread::yield();
        send(engine, data, 1);
        recv(engine, has_seat, 1);
      } else {
        recv(engine, data, 0);
        has_seat[0] = seat.load() != 0 ? 1 : 0;
        send(engine, has_seat, 0);
      }
    }
    engine.flush(soon());
  });
  tuning = Tuning::for_ranks(2);
}

void test_messages() {
  for (const int size : {1, 2, 3, 5}) test_ring_around(size);
  test_tags_match_in_any_order();
  test_contexts_are_apart();
  test_order_is_kept();
  test_blocking_receives_do_not_overtake();
  test_blocking_sends_do_not_overtake();
  test_any_source();
  test_any_tag_and_what_came();
  test_probes_see_and_leave();
  test_driven_transfers_end_by_themselves();
  test_a_small_driven_send_ends_at_once();
  test_large_messages_wait_for_each_other();
}

void test_sends_that_are_never_eager() {
  tuning.eager_bytes = 0;
  tuning.piece_bytes = 4096;
  test_blocking_sends_do_not_overtake();
  tuning = Tuning::for_ranks(2);
}

}  // namespace

int main() {
  for (const TransportKind& each : all_transports()) {
    kind = &each;
    test_sends_that_are_never_eager();
  }
  by_every_way(test_messages);
  test_who_waits_awake_takes_a_seat();
  test_collectives_and_messages_at_once(3);
  test_work_tells_everybody();
}
