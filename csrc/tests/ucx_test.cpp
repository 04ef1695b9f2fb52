// Bodies that go by UCX: nothing is written to memory that was taken back, whatever the
// peer does, and processes agree on whether they use it. What every transport keeps to,
// transport_test holds; engine_test sends messages over it.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "allhands/transport/tcp/lane.hpp"
#include "allhands/transport/tcp/lane_sends.hpp"
#include "bytes.hpp"
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
  bool is_memory(std::byte value) const { return are_all(memory, value); }
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
  CHECK(!pair.receiver.lane->has_failed());
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
  fill_all(pair.memory, std::byte{0xee});
  const auto end = Deadline::after(std::chrono::milliseconds(50));
  pair.run_until([&] { return end.is_expired() && sent->is_over(); });
  CHECK(pair.is_memory(std::byte{0xee}));
}

void test_the_end_of_a_peer_ends_what_is_under_way() {
  Pair pair;
  const UcxRequestPtr warm_up = pair.send();
  pair.hear();
  pair.run_until(
      [&] { return warm_up->is_over() && pair.receiver.channel->has_record(); });
  pair.receiver.channel->pop();
  pair.expect();
  pair.sender.lane = nullptr;
  pair.sender.worker = nullptr;
  wait_until([&] {
    pair.receiver.worker->progress();
    return pair.receiver.num_troubles != 0;
  });
  CHECK(pair.receiver.lane->has_failed());
  CHECK(pair.receiver.lane->problem().starts_with("UCX: "));
  pair.receiver.lane->close();
  CHECK(pair.is_memory(std::byte{0xee}));
  CHECK(!pair.receiver.channel->has_record());
}

// A lane that is closed gets its bodies over the socket: those that UCX has not
// brought, and those that are announced later. What UCX has brought goes nowhere.
void test_bodies_of_a_closed_lane_come_over_the_socket() {
  Pair pair;
  const auto come = [&](std::uint64_t number, std::byte value) {
    std::byte* const place = pair.receiver.lane->begin(number, kBytes);
    if (place != nullptr) fill_all({place, kBytes}, value);
    pair.receiver.lane->end();
    return place;
  };
  const UcxRequestPtr sent = pair.send();
  pair.hear();
  pair.run_until(
      [&] { return sent->is_over() && pair.receiver.channel->has_record(); });
  pair.receiver.channel->pop();
  pair.expect();  // number 1, which is never sent by UCX
  CHECK_THROWS(pair.receiver.lane->begin(1, kBytes), LinkError);  // not closed
  pair.receiver.lane->close();
  pair.hear();  // number 2
  CHECK(!pair.receiver.channel->has_record());
  CHECK(come(0, std::byte{1}) == nullptr);
  CHECK(come(1, std::byte{2}) == pair.memory.data());
  CHECK(pair.is_memory(std::byte{2}));
  CHECK(pair.receiver.channel->landed().bytes == kBytes);
  pair.receiver.channel->pop();
  CHECK(!pair.receiver.channel->has_record());
  CHECK(come(2, std::byte{3}) != nullptr);
  CHECK(pair.receiver.channel->front().back() == std::byte{3});
  pair.receiver.channel->pop();
  CHECK_THROWS(pair.receiver.lane->begin(3, kBytes), LinkError);  // not announced
  pair.memory.assign(2 * kBytes, std::byte{0xee});
  pair.expect();
  CHECK_THROWS(pair.receiver.lane->begin(3, kBytes - 1), LinkError);
  CHECK(pair.receiver.lane->begin(3, kBytes) == pair.memory.data());
  CHECK(!pair.receiver.lane->is_coming_nowhere());
  pair.receiver.channel->forget(kKey);
  CHECK(pair.receiver.lane->forget(kKey, *pair.receiver.channel));
  CHECK(pair.receiver.lane->is_coming_nowhere());
  pair.receiver.lane->end();
  CHECK(pair.receiver.channel->has_record());
}

// A body is kept until it was popped there, whatever UCX says.
void test_what_was_not_popped_is_sent_again() {
  const std::vector<std::byte> bodies[3] = {
      {std::byte{1}}, {std::byte{2}}, {std::byte{3}}};
  const auto channel = std::make_shared<Channel>(1);
  const auto other = std::make_shared<Channel>(2);
  for (int i = 0; i < 3; ++i) channel->take_room(36);
  LaneSends sends;
  for (std::uint64_t i = 0; i < 3; ++i)
    sends.add(i, nullptr, bodies[i], channel, (i + 1) * Channel::cost(36));
  sends.add(3, nullptr, bodies[0], other, 100);
  CHECK(!sends.is_read(0) && sends.is_read(4));
  channel->see({0, FrameKind::Room, 1, 0, Channel::cost(36), 0, 0});
  CHECK(sends.is_read(0) && !sends.is_read(1));
  CHECK(sends.copy(1) == nullptr);
  sends.drop(*other);
  const std::vector<LaneSends::Left> left = sends.take_all();
  CHECK(left.size() == 2 && left[0].number == 1 && left[1].number == 2);
  CHECK(left[0].body.front() == std::byte{2} &&
        left[0].body.data() != bodies[1].data());
  CHECK(left[1].body.data() == bodies[2].data());
  CHECK(sends.is_read(1) && sends.is_read(2) && sends.is_read(3));
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

  Ports2(TcpPort::UcxUse first, TcpPort::UcxUse second, const TcpPort::Say& say = {}) {
    for (const TcpPort::UcxUse use : {first, second})
      ports.push_back(std::make_unique<TcpPort>(
          std::vector<std::string>{"127.0.0.1"}, std::uint16_t{0}, std::uint16_t{0},
          TcpPort::Options{.silence = std::chrono::seconds(1), .ucx = use}));
    for (int rank = 0; rank < 2; ++rank) {
      ports[static_cast<std::size_t>(rank)]->start(TcpRanks::kSecret, say);
      transports[rank] = ports[static_cast<std::size_t>(rank)]->join(
          members_at(ports, rank), {}, Tuning::for_ranks(2));
    }
  }

  // A body that is written while they connect may go over the socket.
  void connect() {
    Link& there = transports[0]->link(1);
    std::memset(there.reserve(8), 1, 8);
    there.commit();
    there.wake_peer();
    Link& link = transports[1]->link(0);
    wait_until([&] { return link.has_record(); });
    link.pop();
  }

  // Sends a body from rank 0 to rank 1 and returns how many went by UCX.
  std::uint64_t send_body() {
    connect();
    const std::vector<std::byte> body(kBytes, std::byte{3});
    const LandingRecord record = {{}, body, kKey};
    Landings* const landings = transports[0]->link(1).landings();
    const std::uint64_t end = landings->num_read() + 1;
    wait_until([&] { return landings->write({&record, 1}) != 0; });
    Link& link = transports[1]->link(0);
    wait_until([&] { return link.has_record(); });
    CHECK(link.front().back() == std::byte{3});
    link.pop();
    wait_until([&] { return landings->num_read() == end; });
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

// The sockets of this process that UCX has made: those of no port.
std::vector<int> sockets_of_ucx(const Ports& ports) {
  std::vector<std::uint16_t> known;
  for (const auto& port : ports) {
    const std::string& at = port->endpoints().front();
    known.push_back(
        static_cast<std::uint16_t>(std::stoi(at.substr(at.rfind(':') + 1))));
  }
  std::vector<int> found;
  for (int fd = 3; fd < 1024; ++fd) {
    sockaddr_in ends[2] = {};
    socklen_t bytes = sizeof(ends[0]);
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&ends[0]), &bytes) != 0) continue;
    bytes = sizeof(ends[1]);
    ::getsockname(fd, reinterpret_cast<sockaddr*>(&ends[1]), &bytes);
    if (ends[0].sin_family != AF_INET) continue;
    if (std::ranges::none_of(ends, [&](const sockaddr_in& end) {
          return std::ranges::count(known, ntohs(end.sin_port)) != 0;
        }))
      found.push_back(fd);
  }
  return found;
}

// UCX's sockets break while bodies are on their way both ways: all come, in order, each
// once, and the ports say once that they have given UCX up.
void test_a_failure_amid_bodies_loses_none() {
  using enum TcpPort::UcxUse;
  constexpr std::uint32_t kNumBodies = 60;
  for (std::uint32_t broken_at = 1; broken_at < kNumBodies; broken_at += 7) {
    std::mutex mutex;
    std::vector<std::string> said;
    Ports2 both(Needed, Needed, [&](const std::string& text) {
      const std::lock_guard lock(mutex);
      said.push_back(text);
    });
    std::atomic<std::uint32_t> num_received = 0;
    const auto exchange = [&](int rank) {
      Link& link = both.transports[rank]->link(1 - rank);
      Landings& landings = *link.landings();
      std::vector<std::vector<std::byte>> bodies;
      for (std::uint32_t i = 0; i < kNumBodies; ++i)
        bodies.emplace_back(kBytes, static_cast<std::byte>(i));
      std::uint32_t sent = 0, read = 0, received = 0;
      wait_until([&] {
        if (sent < kNumBodies) {
          const LandingRecord record = {{}, bodies[sent], kKey};
          if (landings.write({&record, 1}) != 0) ++sent;
        }
        for (; read < landings.num_read() && read < sent; ++read)
          fill_all(bodies[read], std::byte{0xee});  // it is the program's again
        if (link.has_record()) {
          CHECK(are_all(link.front().subspan(LandingRecord::kHeadBytes),
                        static_cast<std::byte>(received)));
          link.pop();
          ++received;
          ++num_received;
        }
        return received == kNumBodies && landings.num_read() == kNumBodies &&
               link.is_safe_to_leave();
      });
    };
    {
      std::jthread first([&] { exchange(0); }), second([&] { exchange(1); });
      wait_until([&] { return num_received >= broken_at; });
      const std::vector<int> sockets = sockets_of_ucx(both.ports);
      CHECK(!sockets.empty());
      for (const int fd : sockets) ::shutdown(fd, SHUT_RDWR);
    }
    wait_until([&] {
      const std::lock_guard lock(mutex);
      return said.size() == 2;
    });
    const std::uint64_t by_ucx = both.ports[0]->num_sent_by_ucx();
    CHECK(both.send_body() == by_ucx);
    for (const std::string& text : said)
      CHECK(text.starts_with("UCX is given up for the process at 127.0.0.1:"));
  }
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
  test_bodies_of_a_closed_lane_come_over_the_socket();
  test_what_was_not_popped_is_sent_again();
  test_a_failure_amid_bodies_loses_none();
  test_a_peer_that_ends_is_lost_and_its_memory_free();
}
