// The flight recorder's ring: what it keeps, and that readers never see a mixed record.
#include "allhands/base/flight_ring.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include "allhands/comm/communicator.hpp"
#include "communicators.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

// All fields follow from one number, so that a mixed record shows.
FlightFacts facts_of(std::uint64_t number) {
  return {.op = static_cast<std::uint8_t>(number % 7),
          .partner = static_cast<std::int32_t>(number),
          .count = number,
          .tag = static_cast<std::int64_t>(number)};
}

bool is_whole(const FlightRecord& record) {
  const FlightFacts expected = facts_of(record.facts.count);
  return record.facts.op == expected.op && record.facts.partner == expected.partner &&
         record.facts.tag == expected.tag;
}

void test_the_last_records_are_kept() {
  FlightRow ring_row;
  FlightRing ring(8, ring_row, 0);
  CHECK(ring.read().empty());
  for (std::uint64_t number = 1; number <= 20; ++number) {
    FlightSlot* const slot = ring.begin(number, facts_of(number));
    slot->end(number % 2 == 0);
  }
  std::map<std::uint64_t, FlightRecord> seen;
  for (const FlightRecord& record : ring.read()) seen[record.number] = record;
  CHECK(seen.size() == 8 && seen.begin()->first == 13);
  for (const auto& [number, record] : seen) {
    CHECK(is_whole(record) && record.facts.count == number);
    CHECK(record.state ==
          (number % 2 == 0 ? FlightState::Completed : FlightState::Failed));
    CHECK(record.issued == record.started && record.ended >= record.started);
    CHECK(record.thread == static_cast<std::uint64_t>(pthread_self()));
  }
}

void test_a_record_under_way_is_not_written_over() {
  FlightRow ring_row;
  FlightRing ring(4, ring_row, 0);
  FlightSlot* const waiting = ring.begin_next(facts_of(1));
  const std::uint64_t number = waiting->number();
  for (std::uint64_t i = 2; i < 50; ++i) ring.begin_next(facts_of(i))->end(true);
  CHECK(waiting->is_under_way(number));
  waiting->end(true);
  FlightRow full_row;
  FlightRing full(1, full_row, 0);
  FlightSlot* const only = full.begin_next(facts_of(1));
  CHECK(full.begin_next(facts_of(2)) == nullptr);  // nothing is lost but this record
  only->end(true);
  CHECK(full.begin_next(facts_of(3)) != nullptr);
}

void test_a_record_that_was_begun_goes_on() {
  FlightRow ring_row;
  FlightRing ring(4, ring_row, 0);
  FlightSlot* const slot = ring.begin(1, facts_of(1));
  CHECK(ring.begin(1, facts_of(1)) == slot);
  CHECK(ring.read().at(0).started != 0);
}

void test_nothing_is_kept_in_no_room() {
  FlightRow ring_row;
  FlightRing ring(0, ring_row, 0);
  CHECK(ring.begin(1, facts_of(1)) == nullptr);
  CHECK(ring.begin_next(facts_of(1)) == nullptr);
  CHECK(ring.read().empty());
}

void test_readers_see_whole_records_of_many_writers() {
  constexpr int kWriters = 3, kRecords = 20000;
  FlightRow ring_row;
  FlightRing ring(16, ring_row, 0);
  std::atomic<int> num_done = 0;
  std::vector<std::thread> threads;
  for (int writer = 0; writer < kWriters; ++writer)
    threads.emplace_back([&, writer] {
      for (int i = 0; i < kRecords; ++i)
        if (FlightSlot* const slot = ring.begin_next(
                facts_of(static_cast<std::uint64_t>(writer * kRecords + i))))
          slot->end(true);
      ++num_done;
    });
  while (num_done < kWriters)
    for (const FlightRecord& record : ring.read()) CHECK(is_whole(record));
  for (std::thread& thread : threads) thread.join();
  CHECK(ring.read().size() == 16);
}

void test_times_are_those_of_the_clock() {
  const TickTimes since;
  const auto now = [] {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  };
  const std::int64_t before = now();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const Ticks ticks = ticks_now();
  const std::int64_t after = now();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const TickTimes times(&since);
  constexpr std::int64_t kExact = 5'000'000;  // of a busy machine
  CHECK(times.wall_time(ticks) > before - kExact);
  CHECK(times.wall_time(ticks) < after + kExact);
  CHECK(times.wall_time(0) == 0);
}

void test_a_group_keeps_its_operations() {
  run_communicators(2, [](Communicator& comm) {
    std::vector<float> data(5, 1);
    const Buffer buffer = buffer_of(data);
    const int peer = 1 - comm.rank();
    CHECK(comm.flight_entries().empty());
    comm.run(barrier(), soon());
    const auto work = comm.post(broadcast(buffer, 1), soon().deadline);
    const auto posted = comm.flight_entries();
    CHECK(posted.size() == 2 && posted[1].sequence == 2);
    CHECK(posted[1].record.issued != 0);
    comm.wait(*work, soon());
    const auto received = comm.post_recv(buffer, peer, 8, soon());
    comm.send(buffer, peer, 8, soon());
    comm.engine().wait(received, soon(), ProgressEngine::AtEnd::GoOn);
    error_of([&] { comm.recv(buffer, peer, 9, within(std::chrono::milliseconds(1))); });
    const auto entries = comm.flight_entries();
    CHECK(entries.size() == 5);
    const auto is = [&](std::size_t i, const char* op, FlightState state) {
      CHECK(std::string_view(entries[i].op) == op);
      CHECK(entries[i].record.state == state);
    };
    is(0, "barrier", FlightState::Completed);
    is(1, "broadcast", FlightState::Completed);
    is(2, "recv", FlightState::Completed);
    is(3, "send", FlightState::Completed);
    is(4, "recv", FlightState::Failed);
    CHECK(entries[1].record.facts.partner == 1 && entries[1].record.facts.count == 5);
    CHECK(entries[1].record.ended != 0 && entries[1].record.facts.is_async);
    CHECK(entries[4].record.facts.tag == 9 && entries[4].record.ended != 0);
    comm.run(barrier(), soon());
  });
}

// The first operation waits until all have come, and is seen to.
void test_an_operation_is_seen_while_the_group_opens() {
  run_communicators(2, [](Communicator& comm) {
    static std::atomic<bool> is_seen = false;
    if (comm.rank() == 1) {
      while (!is_seen) std::this_thread::yield();
      return comm.run(barrier(), soon());
    }
    std::thread reader([&] {
      while (!is_seen) {
        const auto entries = comm.flight_entries();
        is_seen =
            entries.size() == 1 && entries[0].record.state == FlightState::Started;
      }
    });
    comm.run(barrier(), soon());
    reader.join();
    CHECK(comm.flight_entries().size() == 1);
  });
}

}  // namespace

int main() {
  test_the_last_records_are_kept();
  test_a_record_under_way_is_not_written_over();
  test_a_record_that_was_begun_goes_on();
  test_nothing_is_kept_in_no_room();
  test_readers_see_whole_records_of_many_writers();
  test_times_are_those_of_the_clock();
  test_a_group_keeps_its_operations();
  test_an_operation_is_seen_while_the_group_opens();
}
