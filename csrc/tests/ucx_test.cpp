// Bodies that go by UCX: nothing is written to memory that was taken back, whatever the
// peer does, and processes agree on whether they use it. What every transport keeps to,
// transport_test holds; engine_test sends messages over it.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "allhands/transport/tcp/lane.hpp"
#include "transports.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

constexpr std::size_t kBytes = Channel::kMaxRecord - LandingRecord::kHeadBytes;
constexpr LandingKey kKey = 7;

// One side of a lane. Its worker makes progress only where a test says so.
struct Side {
  std::shared_ptr<UcxWorker> worker = UcxWorker::make();
  std::shared_ptr<Channel> channel = std::make_shared<Channel>(1);
  std::atomic<int> num_troubles = 0;
  std::unique_ptr<Lane> lane;

  void connect(const Side& other, Ucx::Tag outgoing, Ucx::Tag incoming) {
    lane = std::make_unique<Lane>(worker, other.worker->address(), outgoing, incoming,
                                  [this] { ++num_troubles; });
  }
};

struct Pair {
  Side sender, receiver;
  std::vector<std::byte> body = std::vector<std::byte>(kBytes, std::byte{5});
  std::vector<std::byte> memory = std::vector<std::byte>(kBytes, std::byte{0xee});
  std::uint64_t num_bodies = 0;

  Pair() {
    sender.connect(receiver, Ucx::Tag{1} << 40, Ucx::Tag{2} << 40);
    receiver.connect(sender, Ucx::Tag{2} << 40, Ucx::Tag{1} << 40);
  }

  UcxRequestPtr send() { return sender.lane->send(num_bodies, body, sender.channel); }
  // Hears of what was sent last, and expects it in `memory`.
  void expect() {
    receiver.channel->expect(kKey, memory);
    hear();
  }
  void hear() {
    receiver.lane->receive({{std::byte{9}}, kBytes, num_bodies++}, kKey,
                           receiver.channel);
  }
  void forget() {
    receiver.channel->forget(kKey);
    receiver.lane->forget(kKey, *receiver.channel);
  }
  // Both make progress until then.
  template <class Condition>
  void run_until(Condition is_met) {
    wait_until([&] {
      sender.worker->progress();
      receiver.worker->progress();
      return is_met();
    });
  }
  bool is_memory(std::byte value) const {
    return std::ranges::all_of(memory, [=](std::byte each) { return each == value; });
  }
};

void test_a_body_lands() {
  Pair pair;
  for (int turn = 0; turn < 5; ++turn) {
    const UcxRequestPtr sent = pair.send();
    CHECK(!pair.receiver.channel->has_record());
    pair.expect();
    pair.run_until(
        [&] { return sent->is_over() && pair.receiver.channel->has_record(); });
    CHECK(sent->state() == UcxRequest::State::Done);
    CHECK(pair.receiver.channel->landed().key == kKey);
    CHECK(pair.receiver.channel->landed().bytes == kBytes);
    CHECK(pair.is_memory(std::byte{5}));
    pair.receiver.channel->pop();
    pair.memory.assign(kBytes, std::byte{0xee});
  }
  CHECK(pair.sender.num_troubles == 0 && pair.receiver.num_troubles == 0);
}

// The second body is there first, and waits for its turn.
void test_records_stay_in_order() {
  Pair pair;
  pair.num_bodies = 1;
  const UcxRequestPtr second = pair.send();
  pair.num_bodies = 0;
  pair.hear();
  pair.expect();
  pair.run_until([&] { return second->is_over(); });
  CHECK(!pair.receiver.channel->has_record());
  pair.num_bodies = 0;
  const UcxRequestPtr first = pair.send();
  pair.run_until([&] { return pair.receiver.channel->has_record(); });
  CHECK(pair.receiver.channel->front().size() == kBytes + LandingRecord::kHeadBytes);
  CHECK(pair.receiver.channel->front()[LandingRecord::kHeadBytes] == std::byte{5});
  pair.receiver.channel->pop();
  pair.run_until([&] { return pair.receiver.channel->has_record(); });
  CHECK(pair.receiver.channel->landed().key == kKey);
}

// It has not begun to come: then it goes nowhere, and the lane works on.
void test_a_body_that_is_no_longer_expected_goes_nowhere() {
  Pair pair;
  pair.expect();
  pair.forget();
  --pair.num_bodies;
  const UcxRequestPtr sent = pair.send();
  pair.run_until(
      [&] { return sent->is_over() && pair.receiver.channel->has_record(); });
  CHECK(sent->state() == UcxRequest::State::Done);
  CHECK(pair.is_memory(std::byte{0xee}));
  CHECK(pair.receiver.lane->is_usable() && !pair.receiver.lane->has_lost());
}

// It has begun to come, and its sender stops: the memory is free all the same.
void test_a_sender_that_stops_midway_holds_no_memory() {
  Pair pair;
  const UcxRequestPtr warm_up = pair.send();
  pair.hear();
  pair.run_until([&] { return warm_up->is_over(); });
  const UcxRequestPtr sent = pair.send();
  pair.expect();
  // Until UCX cannot give the receive up without its sender.
  for (int i = 0; i < 3; ++i) {
    pair.sender.worker->progress();
    pair.receiver.worker->progress();
  }
  pair.forget();
  std::ranges::fill(pair.memory, std::byte{0xee});
  const auto end = Deadline::after(std::chrono::milliseconds(50));
  pair.run_until([&] { return end.is_expired() && sent->is_over(); });
  CHECK(pair.is_memory(std::byte{0xee}));
}

void test_the_end_of_a_peer_ends_what_is_under_way() {
  Pair pair;
  const UcxRequestPtr warm_up = pair.send();
  pair.hear();
  pair.run_until([&] { return warm_up->is_over(); });
  pair.expect();
  pair.sender.lane = nullptr;
  pair.sender.worker = nullptr;
  wait_until([&] {
    pair.receiver.worker->progress();
    return pair.receiver.num_troubles != 0;
  });
  pair.receiver.lane->tend();
  wait_until([&] {
    pair.receiver.worker->progress();
    return pair.receiver.lane->has_lost();
  });
  CHECK(pair.receiver.lane->problem().starts_with("UCX: "));
  pair.receiver.lane->close();
  CHECK(pair.is_memory(std::byte{0xee}));
  CHECK_THROWS(pair.hear(), LinkError);
}

void test_a_body_with_a_wrong_number_or_length_is_refused() {
  Pair pair;
  const auto hear = [&](std::uint64_t bytes, std::uint64_t number) {
    pair.receiver.lane->receive({{}, bytes, number}, kKey, pair.receiver.channel);
  };
  CHECK_THROWS(hear(kBytes, 1), LinkError);
  CHECK_THROWS(hear(Channel::kMaxRecord + 1, 0), LinkError);
}

// Two ports that make these uses of UCX.
struct Ports2 {
  Ports ports;
  std::unique_ptr<Transport> transports[2];

  Ports2(TcpPort::UcxUse first, TcpPort::UcxUse second) {
    for (const TcpPort::UcxUse use : {first, second})
      ports.push_back(std::make_unique<TcpPort>(
          std::vector<std::string>{"127.0.0.1"}, std::uint16_t{0}, std::uint16_t{0},
          TcpPort::Options{.silence = std::chrono::seconds(1), .ucx = use}));
    for (int rank = 0; rank < 2; ++rank) {
      ports[static_cast<std::size_t>(rank)]->start(TcpRanks::kSecret);
      transports[rank] = ports[static_cast<std::size_t>(rank)]->join(
          members_at(ports, rank), {}, Tuning::for_ranks(2));
    }
  }

  // Sends a body from rank 0 to rank 1 and returns how many went by UCX.
  std::uint64_t send_body() {
    const std::vector<std::byte> body(kBytes, std::byte{3});
    const LandingRecord record = {{}, body, kKey};
    Landings* const landings = transports[0]->link(1).landings();
    wait_until([&] { return landings->write({&record, 1}) != 0; });
    Link& link = transports[1]->link(0);
    wait_until([&] { return link.has_record(); });
    CHECK(link.front().back() == std::byte{3});
    link.pop();
    wait_until([&] { return landings->num_read() == 1; });
    wait_until([&] { return transports[0]->link(1).is_safe_to_leave(); });
    return ports[0]->num_sent_by_ucx();
  }
};

void test_ports_agree_on_it() {
  using enum TcpPort::UcxUse;
  CHECK(Ports2(Needed, Needed).send_body() == 1);
  CHECK(Ports2(Needed, Offered).send_body() == 1);
  CHECK(Ports2(Offered, Offered).send_body() == 1);
  CHECK(Ports2(Offered, No).send_body() == 0);
  CHECK(Ports2(No, Offered).send_body() == 0);
}

void test_ports_that_do_not_agree_say_so() {
  using enum TcpPort::UcxUse;
  for (const auto& [first, second] : {std::pair(Needed, No), std::pair(No, Needed)}) {
    Ports2 both(first, second);
    both.transports[0]->link(1);
    wait_until([&] { return !both.transports[0]->is_alive(1); });
    CHECK(both.transports[0]->end_of(1).find(
              "set ALLHANDS_TRANSPORT alike on every host") != std::string::npos);
  }
}

void test_nothing_is_encrypted() {
  const TcpPort::Options both = {.is_encrypted = true, .ucx = TcpPort::UcxUse::Needed};
  CHECK_THROWS(TcpRanks(1, both), Error);
}

// The port closes while bodies are on their way to it.
void test_a_peer_that_ends_is_lost_and_its_memory_free() {
  using enum TcpPort::UcxUse;
  Ports2 both(Needed, Needed);
  CHECK(both.send_body() == 1);
  std::vector<std::byte> body(kBytes, std::byte{3});
  const LandingRecord record = {{}, body, kKey};
  Landings* const landings = both.transports[0]->link(1).landings();
  wait_until([&] { return landings->write({&record, 1}) != 0; });
  both.transports[1] = nullptr;
  both.ports[1]->close();
  wait_until([&] { return !both.transports[0]->is_alive(1); });
  landings->stop_reading();
  CHECK(landings->num_read() == 2);
}

}  // namespace

int main() {
  if (!has_ucx()) return kSkipped;
  test_a_body_lands();
  test_records_stay_in_order();
  test_a_body_that_is_no_longer_expected_goes_nowhere();
  test_a_sender_that_stops_midway_holds_no_memory();
  test_the_end_of_a_peer_ends_what_is_under_way();
  test_a_body_with_a_wrong_number_or_length_is_refused();
  test_ports_agree_on_it();
  test_ports_that_do_not_agree_say_so();
  test_nothing_is_encrypted();
  test_a_peer_that_ends_is_lost_and_its_memory_free();
}
