// Connections whose large bodies go over several sockets beside them.
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "allhands/engine/progress_engine.hpp"
#include "allhands/transport/tcp/bodies.hpp"
#include "sockets.hpp"
#include "transports.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

// --- bodies, as they are announced and as they come ---

constexpr std::size_t kBytes = 1000;
constexpr unsigned kStrand = 1;

Announcement announcement(std::uint64_t number, std::size_t bytes = kBytes) {
  Announcement made = {{}, bytes, number};
  made.head.fill(std::byte{9});
  return made;
}

void come(std::byte* place, std::byte value) {
  CHECK(place != nullptr);
  std::memset(place, static_cast<int>(value), kBytes);
}

// A body goes where it is expected, or into its record, whether it comes before or
// after its announcement; the reader sees it once both are there.
void test_bodies_arrive_in_the_order_of_their_announcements() {
  Bodies bodies;
  const auto channel = std::make_shared<Channel>(1);
  std::vector<std::byte> array(2 * kBytes);
  channel->expect(7, array);
  come(bodies.begin(1, kBytes, kStrand), std::byte{1});
  bodies.end(1);
  bodies.announce(announcement(0), 7, channel);
  bodies.announce(announcement(1), 7, channel);
  bodies.announce(announcement(2), kNoLanding, channel);
  come(bodies.begin(2, kBytes, kStrand), std::byte{2});
  bodies.end(2);
  CHECK(!channel->has_record());  // the first one is missing
  std::byte* const place = bodies.begin(0, kBytes, kStrand);
  CHECK(place == array.data());
  come(place, std::byte{3});
  bodies.end(0);
  for (const std::size_t landed : {kBytes, kBytes, std::size_t{0}}) {
    CHECK(channel->has_record() && channel->landed().bytes == landed);
    CHECK(channel->front().size() == LandingRecord::kHeadBytes + kBytes - landed);
    CHECK(channel->front()[0] == std::byte{9});
    if (landed == 0) CHECK(channel->front().back() == std::byte{2});
    channel->pop();
  }
  CHECK(array.front() == std::byte{3} && array.back() == std::byte{1});
}

// One that comes early and not whole goes on to where it is kept.
void test_a_body_is_announced_while_it_comes() {
  Bodies bodies;
  const auto channel = std::make_shared<Channel>(1);
  std::vector<std::byte> array(kBytes);
  channel->expect(7, array);
  std::byte* const kept = bodies.begin(0, kBytes, kStrand);
  bodies.announce(announcement(0), 7, channel);
  CHECK(!channel->has_record());
  come(kept, std::byte{4});
  bodies.end(0);
  CHECK(channel->has_record() && array.back() == std::byte{4});
}

void test_a_forgotten_place_is_written_to_no_more() {
  Bodies bodies;
  const auto channel = std::make_shared<Channel>(1);
  std::vector<std::byte> array(3 * kBytes);
  channel->expect(7, array);
  for (const std::uint64_t number : {0, 1, 2})
    bodies.announce(announcement(number), 7, channel);
  bodies.begin(1, kBytes, kStrand);
  std::byte* const kept = bodies.begin(3, kBytes, kStrand);
  const auto coming = bodies.forget(7, *channel);
  CHECK(coming.size() == 1 && coming[0].number == 1 && coming[0].strand == kStrand);
  CHECK(bodies.begin(0, kBytes, kStrand) == nullptr);
  CHECK(bodies.begin(2, kBytes, kStrand) == nullptr);
  for (const std::uint64_t number : {0, 1, 2}) bodies.end(number);
  come(kept, std::byte{5});
  bodies.announce(announcement(3), 7, channel);
  bodies.end(3);
  for (int i = 0; i < 3; ++i) channel->pop();
  channel->expect(8, array);  // what has its key is none of theirs
  CHECK(bodies.forget(8, *channel).empty());
}

// What a peer says is checked before it is believed.
void test_bodies_that_make_no_sense_are_refused() {
  const auto channel = std::make_shared<Channel>(1);
  {
    Bodies bodies;
    CHECK_THROWS(bodies.announce(announcement(1), 7, channel), LinkError);
    CHECK_THROWS(bodies.announce(announcement(0, Channel::kMaxRecord + 1), 7, channel),
                 LinkError);
  }
  Bodies bodies;
  bodies.announce(announcement(0), 7, channel);
  CHECK_THROWS(bodies.begin(0, kBytes - 1, kStrand), LinkError);
  bodies.begin(0, kBytes, kStrand);
  CHECK_THROWS(bodies.begin(0, kBytes, kStrand + 1), LinkError);  // it comes already
  bodies.end(0);
  CHECK_THROWS(bodies.begin(0, kBytes, kStrand), LinkError);  // it has come
  bodies.begin(1, kBytes, kStrand);
  CHECK_THROWS(bodies.announce(announcement(1, kBytes + 1), 7, channel), LinkError);
  Bodies early;
  for (std::uint64_t number = 0; number < Bodies::kMostEarly; ++number)
    early.begin(number, 1, kStrand);
  CHECK_THROWS(early.begin(Bodies::kMostEarly, 1, kStrand), LinkError);
}

// --- ranks ---

TcpPort::Options options(unsigned num_sockets, bool is_encrypted = false) {
  return {.silence = std::chrono::hours(1),
          .is_encrypted = is_encrypted,
          .num_sockets = num_sockets};
}

void exchange(ProgressEngine& engine, int rank, int peer, int round) {
  std::vector<float> in(500'000), out = values(rank + 3 * round, in.size());
  const auto receive = engine.post_recv(buffer_of(in), peer, 0, soon().deadline);
  const auto send = engine.post_send(buffer_of(out), peer, 0, soon().deadline);
  engine.wait(send, soon(), ProgressEngine::AtEnd::GiveUp);
  engine.wait(receive, soon(), ProgressEngine::AtEnd::GiveUp);
  CHECK(are_values(peer + 3 * round, in));
}

// Runs a job of two ranks.
void run_job(TcpRanks& ranks, const std::function<void(ProgressEngine&, int)>& body) {
  run_ranks(2, [&](int rank) {
    ProgressEngine engine(ranks.join(rank), ranks.members(rank), Tuning::for_ranks(2));
    body(engine, rank);
    engine.flush(soon());
  });
}

// Beside the connection, as many as are asked for; one carries everything itself.
void test_large_bodies_go_over_so_many_sockets() {
  for (const unsigned num_sockets : {1u, 2u, 5u}) {
    TcpRanks ranks(2, options(num_sockets));
    const std::size_t ends = 2 * (num_sockets == 1 ? 1 : num_sockets + 1);
    std::atomic<std::size_t> seen = 0;
    run_job(ranks, [&](ProgressEngine& engine, int rank) {
      for (int round = 0; round < 4; ++round) exchange(engine, rank, 1 - rank, round);
      wait_until([&] { return connected_sockets().size() == ends; });
      seen = connected_sockets().size();
    });
    CHECK(seen == ends);
  }
}

// While another socket shows that the host is there, a silent one is replaced long
// before the host would count as dead; whichever it is.
void test_a_silent_socket_is_replaced_soon(bool is_encrypted) {
  TcpRanks ranks(2, options(2, is_encrypted));
  std::atomic<int> num_here = 0;
  run_job(ranks, [&](ProgressEngine& engine, int rank) {
    exchange(engine, rank, 1 - rank, 0);
    wait_until([&] { return connected_sockets().size() == 6; });
    for (int round = 1; round < 4; ++round) {
      // The last one to come makes one deaf.
      if (++num_here == 4 * round - 2) {
        const std::vector<int> sockets = connected_sockets();
        deafen(sockets[static_cast<std::size_t>(2 * round - 1) % sockets.size()]);
        num_here += 2;
      }
      wait_until([&] { return num_here >= 4 * round; });
      exchange(engine, rank, 1 - rank, round);
    }
  });
}

// Nothing listens there any more, so all of its sockets fail at once. Others are still
// reached.
void test_who_is_gone_is_lost_with_all_sockets() {
  TcpRanks ranks(3, options(4));
  run_ranks(3, [&](int rank) {
    auto transport = ranks.join(rank);
    Transport& own = *transport;
    ProgressEngine engine(std::move(transport), ranks.members(rank),
                          Tuning::for_ranks(3));
    if (rank < 2) exchange(engine, rank, 1 - rank, 0);
    if (rank == 1) {
      engine.flush(soon());
      return ranks.port(1).close();
    }
    if (rank == 0) wait_until([&] { return !own.is_alive(1); });
    exchange(engine, rank, 2 - rank, 1);
    engine.flush(soon());
  });
}

void test_both_sides_use_the_same_number() {
  Ports ports;
  for (const unsigned num_sockets : {1u, 4u})
    ports.push_back(std::make_unique<TcpPort>(
        std::vector<std::string>{"127.0.0.1"}, std::uint16_t{0}, std::uint16_t{0},
        TcpPort::Options{.silence = std::chrono::seconds(1),
                         .num_sockets = num_sockets}));
  for (const auto& port : ports) port->start(TcpRanks::kSecret);
  const auto first = ports[0]->join(members_at(ports, 0), {}, Tuning::for_ranks(2));
  wait_until([&] { return !first->is_alive(1); });
  const std::string why = first->end_of(1);
  CHECK(why.find("it uses 4 sockets for large data and this process 1 socket") !=
        std::string::npos);
  CHECK(why.find("set ALLHANDS_SOCKETS alike") != std::string::npos);
  for (const unsigned wrong : {0u, TcpPort::kMostSockets + 1})
    CHECK_THROWS(TcpRanks(1, options(wrong)), Error);
}

}  // namespace

int main() {
  test_bodies_arrive_in_the_order_of_their_announcements();
  test_a_body_is_announced_while_it_comes();
  test_a_forgotten_place_is_written_to_no_more();
  test_bodies_that_make_no_sense_are_refused();
  test_large_bodies_go_over_so_many_sockets();
  test_a_silent_socket_is_replaced_soon(false);
  test_a_silent_socket_is_replaced_soon(true);
  for (int round = 0; round < 5; ++round) test_who_is_gone_is_lost_with_all_sockets();
  test_both_sides_use_the_same_number();
}
