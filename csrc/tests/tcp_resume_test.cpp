// Connections that break while both processes live: they go on over another socket,
// and each message arrives once, as it was sent.
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "allhands/engine/progress_engine.hpp"
#include "allhands/net/socket.hpp"
#include "sockets.hpp"
#include "transports.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

const Tuning tuning = Tuning::for_ranks(2);
// The connections of the test under way.
bool is_encrypted = false;
unsigned num_sockets = 1;

TcpRanks two_ranks(std::chrono::nanoseconds silence = TcpPort::kSilence) {
  return TcpRanks(
      2,
      {.silence = silence, .is_encrypted = is_encrypted, .num_sockets = num_sockets});
}

// What an abort of a connection is for both of its ends.
bool break_one(std::mt19937& chance) {
  const std::vector<int> all = connected_sockets();
  return !all.empty() && ::shutdown(all[chance() % all.size()], SHUT_RDWR) == 0;
}

// Both ranks send to each other at the same time, messages of all sizes.
void exchange(ProgressEngine& engine, int rank, int round) {
  static constexpr std::size_t kCounts[] = {1, 3, 700, 1024, 4099, 100'000, 300'001, 7};
  std::vector<std::vector<float>> in, out;
  std::vector<TransferPtr> receives, sends;
  for (std::size_t i = 0; i < std::size(kCounts); ++i) {
    in.emplace_back(kCounts[i], -1.0f);
    out.push_back(values(rank + 2 * round, kCounts[i]));
  }
  for (std::size_t i = 0; i < std::size(kCounts); ++i) {
    const auto tag = static_cast<int>(i);
    receives.push_back(
        engine.post_recv(buffer_of(in[i]), 1 - rank, tag, soon().deadline));
    sends.push_back(
        engine.post_send(buffer_of(out[i]), 1 - rank, tag, soon().deadline));
  }
  for (const auto& each : sends)
    engine.wait(each, soon(), ProgressEngine::AtEnd::GiveUp);
  // What was sent belongs to the program again.
  for (auto& data : out) std::fill(data.begin(), data.end(), -2.0f);
  for (const auto& each : receives)
    engine.wait(each, soon(), ProgressEngine::AtEnd::GiveUp);
  for (const auto& data : in) CHECK(are_values(1 - rank + 2 * round, data));
}

// A message of 256 KiB is sent, and its array free, before there is a receive for it; a
// larger one only after that.
void test_a_message_of_some_size_needs_no_receive() {
  constexpr std::size_t kCount = (std::size_t{256} << 10) / sizeof(float);
  TcpRanks ranks = two_ranks();
  std::atomic<bool> is_sent = false;
  run_ranks(2, [&](int rank) {
    ProgressEngine engine(ranks.join(rank), ranks.members(rank), tuning);
    std::vector<float> first = values(rank, kCount), second = values(rank, kCount + 1);
    if (rank == 0) {
      engine.send(buffer_of(first), 1, 0, soon());
      std::ranges::fill(first, -2.0f);
      const auto larger = engine.post_send(buffer_of(second), 1, 1, soon().deadline);
      CHECK(!larger->work.is_completed());
      is_sent = true;
      engine.wait(larger, soon(), ProgressEngine::AtEnd::GiveUp);
    } else {
      wait_until([&] { return is_sent.load(); });
      engine.recv(buffer_of(first), 0, 0, soon());
      engine.recv(buffer_of(second), 0, 1, soon());
      CHECK(are_values(0, first) && are_values(0, second));
    }
    engine.flush(soon());
  });
}

// Wherever that happens: in frames, in bodies, in handshakes, several times in a row.
void test_messages_arrive_once_whatever_breaks() {
  constexpr int kInARow = 10;
  // A TLS handshake takes milliseconds under a sanitizer, and has to end at times.
  const int num_wanted = is_encrypted ? 30 : 150;
  const unsigned longest_pause = is_encrypted ? 60'000 : 4000;  // us
  TcpRanks ranks = two_ranks();
  std::atomic<int> num_breaks = 0, num_rounds = 0;
  std::atomic<bool> is_over = false;
  std::thread breaker([&] {
    std::mt19937 chance(7);
    while (!is_over) {
      // Where CPUs are busy, no handshake might end in time for the next break.
      if (break_one(chance) && ++num_breaks % kInARow == 0)
        wait_until([&, seen = num_rounds.load()] {
          return num_rounds != seen || is_over.load();
        });
      // Bursts, and time to get on.
      if (chance() % 4 != 0)
        std::this_thread::sleep_for(
            std::chrono::microseconds(chance() % longest_pause));
    }
  });
  run_ranks(2, [&](int rank) {
    ProgressEngine engine(ranks.join(rank), ranks.members(rank), tuning);
    // Both end with the same round: the one who would be first tells the other.
    for (int round = 0;; ++round) {
      exchange(engine, rank, round % 50);
      ++num_rounds;
      std::vector<float> go_on = {num_breaks < num_wanted ? 1.0f : 0.0f};
      if (rank == 0)
        engine.send(buffer_of(go_on), 1, 99, soon());
      else
        engine.recv(buffer_of(go_on), 0, 99, soon());
      if (go_on[0] == 0) break;
    }
    if (rank == 0) is_over = true;
    engine.flush(soon());
  });
  breaker.join();
  CHECK(num_breaks >= num_wanted);
}

// As a program's own tests ask for it; who has no socket has nothing to break.
void test_a_port_breaks_its_socket_to_a_peer() {
  TcpRanks ranks = two_ranks();
  const Membership members = ranks.members(0);
  CHECK(!ranks.port(0).break_socket(members.process(1)));
  CHECK(!ranks.port(0).break_socket(members.process(0)));
  std::atomic<int> num_breaks = 0;
  run_ranks(2, [&](int rank) {
    ProgressEngine engine(ranks.join(rank), ranks.members(rank), tuning);
    for (int round = 0; round < 8; ++round) {
      exchange(engine, rank, round);
      if (ranks.port(rank).break_socket(members.process(1 - rank))) ++num_breaks;
    }
    exchange(engine, rank, 8);
    engine.flush(soon());
  });
  CHECK(num_breaks > 0);
}

// A socket that nothing comes through any more, though both hosts are there: what a
// firewall does that forgets a connection.
void test_a_stuck_socket_is_replaced(bool is_one_way) {
  TcpRanks ranks = two_ranks(std::chrono::seconds(is_encrypted ? 3 : 1));
  std::atomic<int> num_ready = 0;
  run_ranks(2, [&](int rank) {
    ProgressEngine engine(ranks.join(rank), ranks.members(rank), tuning);
    exchange(engine, rank, 0);
    if (++num_ready == 2) {
      const std::vector<int> sockets = connected_sockets();
      CHECK(sockets.size() == 2);
      deafen(sockets[0]);
      if (!is_one_way) deafen(sockets[1]);
      num_ready = 3;
    }
    wait_until([&] { return num_ready == 3; });
    exchange(engine, rank, 1);
    engine.flush(soon());
  });
}

// Who writes into an idle connection that has broken loses nothing either.
void test_an_idle_connection_goes_on() {
  TcpRanks ranks = two_ranks();
  std::mt19937 chance(3);
  const auto a = ranks.join(0), b = ranks.join(1);
  const auto send = [](Link& link, int value) {
    std::byte* const record = link.reserve(100);
    CHECK(record != nullptr);
    std::memset(record, value, 100);
    link.commit();
    link.wake_peer();
  };
  for (int i = 0; i < 20; ++i) {
    send(a->link(1), i);
    // The socket found may be one that has broken before and is just being closed.
    if (i % 3 != 2 && i != 0) wait_until([&] { return break_one(chance); });
    send(a->link(1), i + 100);
    for (const int value : {i, i + 100}) {
      wait_until([&] { return b->link(0).has_record(); });
      CHECK(b->link(0).front()[99] == static_cast<std::byte>(value));
      b->link(0).pop();
    }
    wait_until([&] { return a->link(1).is_safe_to_leave(); });
  }
  CHECK(a->is_alive(1) && b->is_alive(0));
}

// Where confirmed data is lost all the same, nobody goes on as if it had come.
void test_lost_bytes_are_noticed() {
  TcpRanks ranks = two_ranks();
  const auto a = ranks.join(0), b = ranks.join(1);
  std::mt19937 chance(5);
  const auto is_over = [&] { return !a->is_alive(1) || !b->is_alive(0); };
  Link& link = a->link(1);
  std::uint64_t sent = 0, got = 0, got_before = 0;
  const Deadline last = Deadline::after(std::chrono::seconds(100));
  while (!is_over()) {
    CHECK(!last.is_expired());
    if (std::byte* const record = link.reserve(1000)) {
      std::memcpy(record, &sent, sizeof(sent));
      ++sent;
      link.commit();
      link.wake_peer();
    }
    for (; b->link(0).has_record() && chance() % 8 != 0; b->link(0).pop()) {
      std::uint64_t number = 0;
      std::memcpy(&number, b->link(0).front().data(), sizeof(number));
      CHECK(number == got++);
    }
    // Not before the connection has been made again: it would be given up some time.
    if (got == got_before || chance() % 64 != 0) continue;
    got_before = got;
    // The kernel drops what it has confirmed. Not by connect(): for ThreadSanitizer, a
    // thread that has not made a socket may not do that.
    const sockaddr none = {AF_UNSPEC, {}};
    for (const int fd : connected_sockets())
      ::syscall(SYS_connect, fd, &none, sizeof(none));
  }
  wait_until([&] { return !a->is_alive(1) && !b->is_alive(0); });
  CHECK(a->end_of(1).find("confirmed data that did not arrive") != std::string::npos ||
        b->end_of(0).find("confirmed data that did not arrive") != std::string::npos);
}

}  // namespace

int main() {
  for (const bool each : {false, true}) {
    is_encrypted = each;
    test_an_idle_connection_goes_on();
    test_a_message_of_some_size_needs_no_receive();
    for (const unsigned count : {1u, 3u}) {
      num_sockets = count;
      test_messages_arrive_once_whatever_breaks();
    }
    num_sockets = 1;
    test_a_port_breaks_its_socket_to_a_peer();
    test_a_stuck_socket_is_replaced(false);
    test_a_stuck_socket_is_replaced(true);
    test_lost_bytes_are_noticed();
  }
}
