// What every transport keeps to: one set of tests on each.
#include "allhands/transport/transport.hpp"

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "bytes.hpp"
#include "transports.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

const TransportKind* kind = nullptr;

const Error kEnough(ErrorKind::Backend, "enough");

// Runs body(transport, rank) as every rank of a fresh group.
template <class Body>
void run_transports(int size, Body body) {
  const MakeTransport make = kind->make_group(size, Tuning::for_ranks(size));
  run_ranks(size, [&](int rank) {
    const std::unique_ptr<Transport> transport = make(rank);
    body(*transport, rank);
  });
}

void fill(std::byte* record, std::size_t bytes, std::size_t seed) {
  Pattern(seed).fill({record, bytes});
}

bool is_filled(std::span<const std::byte> record, std::size_t bytes, std::size_t seed) {
  return record.size() >= bytes && record.size() <= bytes + 64 &&
         Pattern(seed).is_in(record.first(bytes));
}

// Waits for an event until is_met().
template <class Condition>
void wait_until(Transport& transport, Condition is_met) {
  const Deadline last = Deadline::after(std::chrono::seconds(100));
  while (true) {
    const std::uint32_t seen = transport.num_events();
    if (is_met()) return;
    transport.sleep(seen, last.remaining());
    CHECK(!last.is_expired());
  }
}

void send(Transport& transport, int to, std::size_t bytes, std::size_t seed) {
  Link& link = transport.link(to);
  std::byte* record = nullptr;
  wait_until(transport, [&] { return (record = link.reserve(bytes)) != nullptr; });
  fill(record, bytes, seed);
  link.commit();
  link.wake_peer();
}

void receive(Transport& transport, int from, std::size_t bytes, std::size_t seed) {
  Link& link = transport.link(from);
  wait_until(transport, [&] { return link.has_record(); });
  CHECK(is_filled(link.front(), bytes, seed));
  CHECK(is_filled(link.front(), bytes, seed));  // until it is popped
  link.pop();
}

// Far more than fits at a time, in both directions and to itself.
void test_records_arrive_whole_in_order_and_once(int size) {
  run_transports(size, [&](Transport& transport, int rank) {
    const int right = (rank + 1) % size, left = (rank + size - 1) % size;
    const std::size_t most = transport.link(right).max_record();
    CHECK(most == transport.link(left).max_record());
    for (std::size_t i = 0; i < 2000; ++i) {
      const std::size_t bytes = i % 50 == 0 ? most : i * 37 % 300 + 1;
      send(transport, right, bytes, i);
      receive(transport, left, bytes, i);
    }
    CHECK(!transport.link(left).has_record());
    CHECK(transport.link(left).front().empty());
  });
}

void test_what_does_not_fit_fits_once_the_reader_has_popped() {
  std::atomic<bool> is_full = false;  // the reader leaves it so until then
  run_transports(2, [&](Transport& transport, int rank) {
    Link& link = transport.link(1 - rank);
    if (rank == 0) {
      std::size_t num_sent = 0;
      for (; std::byte* record = link.reserve(1000); ++num_sent) {
        fill(record, 1000, num_sent);
        link.commit();
      }
      CHECK(num_sent >= 2);
      CHECK(link.reserve(1000) == nullptr);
      is_full = true;
      link.wake_peer();  // once for all of them
      send(transport, 1, 1000, num_sent);
      send(transport, 1, 1, 0);
    } else {
      while (!is_full) std::this_thread::yield();
      std::size_t num_received = 0;
      wait_until(transport, [&] {
        for (; !link.front().empty(); ++num_received) {
          if (num_received != 0 && link.front().size() < 1000) return true;
          CHECK(is_filled(link.front(), 1000, num_received));
          link.pop();
        }
        return false;
      });
      link.pop();
    }
  });
}

void test_ready_names_those_who_have_written() {
  run_transports(3, [](Transport& transport, int rank) {
    if (rank != 0) return send(transport, 0, 8, static_cast<std::size_t>(rank));
    std::vector<bool> has_come(3);
    wait_until(transport, [&] {
      for (const int peer : transport.ready())
        if (transport.link(peer).has_record())
          has_come[static_cast<std::size_t>(peer)] = true;
      return has_come[1] && has_come[2];
    });
    receive(transport, 2, 8, 2);
    receive(transport, 1, 8, 1);
  });
}

void test_the_writer_sees_what_has_been_settled() {
  run_transports(2, [](Transport& transport, int rank) {
    Link& link = transport.link(1 - rank);
    if (rank == 0) {
      CHECK(link.settled() == 0);
      send(transport, 1, 10, 0);
      receive(transport, 1, 1, 0);
      CHECK(link.settled() == 300);
    } else {
      receive(transport, 0, 10, 0);
      link.settle(100);
      link.settle(200);
      send(transport, 0, 1, 0);
    }
  });
}

void test_a_rank_can_leave_once_its_records_are_safe() {
  const MakeTransport make = kind->make_group(2, Tuning::for_ranks(2));
  const auto writer = make(0);
  Link& link = writer->link(1);
  CHECK(link.is_safe_to_leave());
  send(*writer, 1, 100, 7);
  const auto reader = make(1);
  wait_until(*writer, [&] { return link.is_safe_to_leave(); });
  writer->leave(Presence::Left, kEnough);
  receive(*reader, 0, 100, 7);
}

void test_a_sleeper_wakes() {
  run_transports(2, [](Transport& transport, int rank) {
    for (std::size_t i = 0; i < 50; ++i) {
      if (rank == 0) {
        send(transport, 1, 1, i);
        receive(transport, 1, 1, i);
      } else {
        receive(transport, 0, 1, i);
        send(transport, 0, 1, i);
      }
    }
    const std::uint32_t seen = transport.num_events();
    std::thread other([&] { transport.wake_self(); });
    wait_until(transport, [&] { return transport.num_events() != seen; });
    other.join();
    const auto start = Deadline::Clock::now();
    transport.sleep(transport.num_events(), std::chrono::milliseconds(1));
    CHECK(Deadline::Clock::now() - start < std::chrono::seconds(90));
  });
}

void test_a_rank_says_that_it_leaves(Presence how) {
  run_transports(3, [&](Transport& transport, int rank) {
    for (int peer = 0; peer < 3; ++peer) CHECK(transport.is_alive(peer));
    if (rank == 1) return transport.leave(how, kEnough);
    wait_until(transport, [&] { return transport.presence(1) == how; });
    CHECK(transport.presence(rank) == Presence::Here);
  });
}

// A record of a head that `seed` makes and a body.
LandingRecord record_of(std::span<const std::byte> body, LandingKey key,
                        std::size_t seed) {
  LandingRecord record = {{}, body, key};
  fill(record.head.data(), record.head.size(), seed);
  return record;
}

// All of them, as many at a time as find room. Then their memory may change.
void write_bodies(Transport& transport, int to,
                  std::span<const LandingRecord> records) {
  Landings* const landings = transport.link(to).landings();
  const std::uint64_t end = landings->num_read() + records.size();
  while (!records.empty()) {
    std::size_t count = 0;
    wait_until(transport, [&] { return (count = landings->write(records)) != 0; });
    records = records.subspan(count);
  }
  landings->copy_rest();
  wait_until(transport, [&] { return landings->num_read() == end; });
}

// The next record of `from`.
std::span<const std::byte> next(Transport& transport, int from) {
  Link& link = transport.link(from);
  wait_until(transport, [&] { return link.has_record(); });
  return link.front();
}

std::vector<std::byte> body_of(std::size_t bytes, std::size_t seed) {
  std::vector<std::byte> body(bytes);
  fill(body.data(), bytes, seed);
  return body;
}

// Where a transport has landings: what is expected comes to where it belongs, in pieces
// too, and all else in its record; in order.
void test_bodies_land_where_they_are_expected() {
  run_transports(2, [](Transport& transport, int rank) {
    Link& link = transport.link(1 - rank);
    Landings* const landings = link.landings();
    if (landings == nullptr) return;
    const std::size_t most = link.max_record() - LandingRecord::kHeadBytes;
    const std::size_t lengths[] = {most, 1, 4099, most, 100'000};
    constexpr LandingKey kExpected = 7, kOther = 8;
    for (std::size_t turn = 0; turn < (kIsSanitized ? 4 : 20); ++turn) {
      if (rank == 0) {
        receive(transport, 1, 1, turn);  // it is expected
        std::vector<std::vector<std::byte>> bodies;
        std::vector<LandingRecord> records;
        for (const std::size_t bytes : lengths) {
          bodies.push_back(body_of(bytes, turn));
          records.push_back(record_of(bodies.back(), kExpected, turn));
          bodies.push_back(body_of(bytes, turn + 1));
          records.push_back(record_of(bodies.back(), kOther, turn + 1));
        }
        write_bodies(transport, 1, records);
        send(transport, 1, 10, turn + 2);
        continue;
      }
      std::vector<std::byte> memory(2 * most + 104'100, std::byte{0xee});
      landings->expect(kExpected, memory);
      send(transport, 0, 1, turn);
      std::size_t at = 0;
      for (const std::size_t bytes : lengths) {
        CHECK(is_filled(next(transport, 0), LandingRecord::kHeadBytes, turn));
        CHECK(landings->landed().key == kExpected);
        CHECK(landings->landed().bytes == bytes);
        CHECK(link.front().size() == LandingRecord::kHeadBytes);
        CHECK(is_filled({memory.data() + at, bytes}, bytes, turn));
        at += bytes;
        link.pop();
        const std::span<const std::byte> record = next(transport, 0);
        CHECK(landings->landed().key == kNoLanding);
        CHECK(is_filled(record.subspan(LandingRecord::kHeadBytes), bytes, turn + 1));
        link.pop();
      }
      receive(transport, 0, 10, turn + 2);
      CHECK(at == memory.size());
      landings->forget(kExpected);
    }
  });
}

// Whenever that is: nothing is written any more to what is no longer expected.
void test_nothing_lands_where_it_is_no_longer_expected() {
  constexpr std::size_t kTurns = kIsSanitized ? 60 : 300;
  run_transports(2, [](Transport& transport, int rank) {
    Link& link = transport.link(1 - rank);
    Landings* const landings = link.landings();
    if (landings == nullptr) return;
    const std::size_t bytes = link.max_record() - LandingRecord::kHeadBytes;
    if (rank == 0) {
      for (std::size_t turn = 0; turn < kTurns; ++turn) {
        receive(transport, 1, 1, turn);  // it is expected
        const std::vector<std::byte> body = body_of(bytes, turn);
        write_bodies(transport, 1, std::vector{record_of(body, turn + 1, turn)});
      }
      return;
    }
    std::vector<std::byte> memory(bytes);
    std::size_t num_landed = 0;
    for (std::size_t turn = 0; turn < kTurns; ++turn) {
      landings->expect(turn + 1, memory);
      send(transport, 0, 1, turn);
      const bool is_patient = turn % 4 == 0;  // then it lands
      for (std::size_t i = 0; (is_patient || i < turn * 7) && !link.has_record(); ++i)
        std::this_thread::yield();
      landings->forget(turn + 1);
      fill_all(memory, std::byte{0xee});
      const std::span<const std::byte> record = next(transport, 0);
      const bool has_landed = landings->landed().key != kNoLanding;
      num_landed += has_landed ? 1 : 0;
      CHECK(is_filled(record.first(LandingRecord::kHeadBytes),
                      LandingRecord::kHeadBytes, turn));
      if (!has_landed)
        CHECK(is_filled(record.subspan(LandingRecord::kHeadBytes), bytes, turn));
      CHECK(are_all(memory, std::byte{0xee}));
      link.pop();
    }
    CHECK(num_landed >= kTurns / 4);
  });
}

// Where a transport has single copies: whoever does the parts, all of it arrives.
void test_a_single_copy_arrives_whole() {
  run_transports(2, [](Transport& transport, int rank) {
    constexpr std::size_t kCount = 1'000'003;
    std::vector<float> data(kCount, rank == 0 ? 5.0f : 0.0f);
    const Buffer buffer = buffer_of(data);
    SingleCopySender* const sender = transport.link(1).single_copy_sender();
    SingleCopyReceiver* const receiver = transport.link(0).single_copy_receiver();
    CHECK((sender == nullptr) == (receiver == nullptr));
    if (sender == nullptr) return;
    const auto exchange = [&](ArrayKey mine) {  // keys travel in records
      Link& link = transport.link(1 - rank);
      std::memcpy(link.reserve(sizeof(mine)), &mine, sizeof(mine));
      link.commit();
      link.wake_peer();
      wait_until(transport, [&] { return link.has_record(); });
      ArrayKey theirs;
      std::memcpy(&theirs, link.front().data(), sizeof(theirs));
      link.pop();
      return theirs;
    };
    for (std::uint32_t message = 1; message <= 20; ++message) {
      if (rank == 0) {
        CHECK(sender->key_of(buffer) != kNoKey);
        const ArrayKey theirs = exchange(sender->key_of(buffer));
        exchange(kNoKey);
        sender->join(message, buffer, theirs);
        if (message % 2 == 0)
          while (sender->copy_part()) {
          }
        exchange(kNoKey);
        sender->end();
        CHECK(!sender->has_part());
      } else {
        CHECK(receiver->can_receive(buffer));
        // Begun before the sender hears of it.
        const ArrayKey theirs = exchange(reinterpret_cast<ArrayKey>(data.data()));
        CHECK(receiver->begin(message, buffer, theirs) ==
              reinterpret_cast<ArrayKey>(data.data()));
        exchange(kNoKey);
        while (receiver->copy_part() != SingleCopyReceiver::State::Complete) {
        }
        CHECK(receiver->num_withdrawn() == 0);
        CHECK(!receiver->has_part());
        receiver->end();
        CHECK(data == std::vector<float>(kCount, 5));
        data.assign(kCount, 0);
        exchange(kNoKey);
      }
    }
  });
}

}  // namespace

int main() {
  const std::vector<TransportKind> kinds = all_transports();
  for (const TransportKind& each : kinds) {
    kind = &each;
    for (const int size : {1, 2, 3, 5})
      test_records_arrive_whole_in_order_and_once(size);
    test_what_does_not_fit_fits_once_the_reader_has_popped();
    test_ready_names_those_who_have_written();
    test_the_writer_sees_what_has_been_settled();
    test_a_rank_can_leave_once_its_records_are_safe();
    test_a_sleeper_wakes();
    test_a_rank_says_that_it_leaves(Presence::Left);
    test_a_rank_says_that_it_leaves(Presence::Aborted);
    test_bodies_land_where_they_are_expected();
    test_nothing_lands_where_it_is_no_longer_expected();
    test_a_single_copy_arrives_whole();
  }
}
