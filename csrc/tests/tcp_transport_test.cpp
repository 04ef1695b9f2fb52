// What is the TCP transport's own, beside what every transport keeps to: connections
// that groups share, processes that meet, die and fall silent.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "allhands/engine/progress_engine.hpp"
#include "sockets.hpp"
#include "transports.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

const Tuning tuning = Tuning::for_ranks(2);

TcpPort::GroupToken token(int number) {
  return {static_cast<std::byte>(number), std::byte{1}};
}

bool try_send(Link& link, std::size_t bytes, int value) {
  std::byte* const record = link.reserve(bytes);
  if (record == nullptr) return false;
  std::memset(record, value, bytes);
  link.commit();
  link.wake_peer();
  return true;
}

void receive(Link& link, std::size_t bytes, int value) {
  wait_until([&] { return link.has_record(); });
  CHECK(link.front().size() == bytes);
  CHECK(link.front()[bytes - 1] == static_cast<std::byte>(value));
  link.pop();
}

std::size_t num_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd"))
    ++count;
  return count;
}

bool has_more(const std::vector<int>& sockets, const std::vector<int>& before) {
  return std::ranges::any_of(
      sockets, [&](int fd) { return std::ranges::find(before, fd) == before.end(); });
}

// Of the two sockets that may be made, one is left, and nothing is lost.
void test_two_that_connect_at_the_same_time_share_one_connection() {
  for (int round = 0; round < 30; ++round) {
    TcpRanks ranks(2);
    const auto a = ranks.join(0), b = ranks.join(1);
    const std::size_t before = num_descriptors();
    run_ranks(2, [&](int rank) {
      Link& link = (rank == 0 ? a : b)->link(1 - rank);
      for (int i = 0; i < 20; ++i) CHECK(try_send(link, 100, i));
      for (int i = 0; i < 20; ++i) receive(link, 100, i);
    });
    wait_until([&] { return num_descriptors() == before + 2; });
  }
}

// A group that does not read holds up no other, and each gets what is its own.
void test_groups_share_a_connection() {
  constexpr int kGroups = 20;
  TcpRanks ranks(2);
  std::vector<std::unique_ptr<Transport>> a, b;
  const std::size_t before = num_descriptors();
  for (int i = 0; i < kGroups; ++i) {
    a.push_back(ranks.join(0, token(i)));
    b.push_back(ranks.join(1, token(i)));
  }
  Link& slow = a[0]->link(1);
  std::size_t num_slow = 0;
  while (try_send(slow, 1000, 7)) ++num_slow;
  CHECK(num_slow > 100);
  for (int round = 0; round < 50; ++round)
    for (std::size_t i = 1; i < kGroups; ++i) {
      CHECK(try_send(a[i]->link(1), 5000, static_cast<int>(i)));
      receive(b[i]->link(0), 5000, static_cast<int>(i));
    }
  CHECK(num_descriptors() == before + 2);
  for (std::size_t i = 0; i < num_slow; ++i) receive(b[0]->link(0), 1000, 7);
  wait_until([&] { return try_send(slow, 1000, 7); });
}

void test_what_comes_before_the_group_is_joined_is_kept() {
  TcpRanks ranks(2);
  const auto a = ranks.join(0);
  for (int i = 0; i < 100; ++i) CHECK(try_send(a->link(1), 3000, i));
  wait_until([&] { return a->link(1).is_safe_to_leave(); });
  const auto b = ranks.join(1);
  wait_until([&] {
    const std::span<const int> ready = b->ready();
    return ready.size() == 1 && ready[0] == 0;
  });
  for (int i = 0; i < 100; ++i) receive(b->link(0), 3000, i);
}

// Also to one that asks only once the other is through with the group.
void test_who_left_says_so_to_who_comes_later() {
  TcpRanks ranks(2);
  {
    const auto gone = ranks.join(1);
  }
  const auto a = ranks.join(0);
  wait_until([&] { return a->presence(1) == Presence::Left; });
  CHECK(a->is_alive(1));
}

void test_an_abort_carries_its_error() {
  TcpRanks ranks(2);
  run_ranks(2, [&](int rank) {
    ProgressEngine engine(ranks.join(rank), ranks.members(rank), tuning);
    std::vector<float> data(1);
    if (rank == 1) {
      engine.recv(buffer_of(data), 0, 0, soon());
      Error reason(ErrorKind::Mismatch, std::string(1 << 20, '.'), {1, 3});
      reason.set_cause({1, "the shapes differ" + std::string(1 << 20, '.')});
      engine.leave(reason, Presence::Aborted);
      return;
    }
    engine.send(buffer_of(data), 1, 0, soon());
    const Error error = error_of([&] { engine.recv(buffer_of(data), 1, 0, soon()); });
    CHECK(error.kind() == ErrorKind::Mismatch);
    CHECK(has(error, "...."));
    CHECK(error.ranks() == (std::vector<int>{1, 3}));
    CHECK(error.cause()->rank == 1);
    CHECK(error.cause()->text.starts_with("the shapes differ.."));
    CHECK(error.cause()->text.size() == RemoteException::kMaxBytes);
  });
}

// A socket that listens as many ranks, and answers none.
class Silent {
 public:
  Silent() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)) {
    sockaddr_in address = {.sin_family = AF_INET,
                           .sin_port = 0,
                           .sin_addr = {htonl(INADDR_LOOPBACK)},
                           .sin_zero = {}};
    socklen_t length = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    CHECK(::bind(listener_.get(), any, length) == 0);
    CHECK(::listen(listener_.get(), 512) == 0);
    CHECK(::getsockname(listener_.get(), any, &length) == 0);
    endpoint_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }

  const std::string& endpoint() const { return endpoint_; }
  std::size_t num_dialled() {
    int fd = -1;
    while ((fd = ::accept(listener_.get(), nullptr, nullptr)) >= 0)
      dialled_.emplace_back(fd);
    return dialled_.size();
  }

 private:
  Fd listener_;
  std::string endpoint_;
  std::vector<Fd> dialled_;
};

// How many are dialled for an abort by rank 0, which has lost `lost` before, if any.
std::size_t num_dialled_for_abort(Silent& silent, std::vector<ProcessIdentity> all,
                                  std::optional<int> lost, std::size_t wanted) {
  {
    TcpPort port({"127.0.0.1"}, 0, 0, {.silence = std::chrono::hours(1)});
    all[0] = {std::string("here"), 1, 1, port.endpoints()[0]};
    port.start(TcpRanks::kSecret);
    const auto transport =
        port.join(Membership{"test", 0, std::move(all)}, token(1), tuning);
    if (lost) wait_until([&] { return !transport->is_alive(*lost); });
    transport->leave(Presence::Aborted, Error(ErrorKind::Backend, "enough"));
    wait_until([&] { return silent.num_dialled() >= wanted; });
  }
  return silent.num_dialled();
}

// Not each rank of another host is dialled, where there are many.
void test_an_abort_takes_few_descriptors() {
  Silent silent;
  std::vector<ProcessIdentity> all;
  for (int rank = 0; rank < 300; ++rank)
    all.push_back({std::string("there"), rank + 1, 1, silent.endpoint()});
  CHECK(num_dialled_for_abort(silent, std::move(all), {}, 128) == 128);
}

// Of each host one that is not lost; rank 1 refuses, and rank 2 is of its host.
void test_an_abort_reaches_each_host() {
  Silent silent;
  std::vector<ProcessIdentity> all(1);
  all.push_back({std::string("host 2"), 2, 1, "127.0.0.1:1"});
  for (int rank = 2; rank < 150; ++rank)
    all.push_back({"host " + std::to_string(rank), rank + 1, 1, silent.endpoint()});
  CHECK(num_dialled_for_abort(silent, std::move(all), 1, 148) == 148);
}

// --- processes ---

// Runs body(rank, port, members) in as many forked processes, which have not met.
// Returns their pids; the parent has no part.
template <class Body>
std::vector<pid_t> fork_ranks(int size, std::chrono::nanoseconds silence, Body body) {
  const std::size_t count = static_cast<std::size_t>(size);
  std::vector<std::array<int, 2>> up(count), down(count);
  for (std::size_t i = 0; i < count; ++i)
    CHECK(::pipe(up[i].data()) == 0 && ::pipe(down[i].data()) == 0);
  struct Card {
    int pid;
    std::uint64_t start;
    char endpoint[64];
  };
  std::vector<pid_t> pids;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t pid = ::fork();
    CHECK(pid >= 0);
    if (pid != 0) {
      pids.push_back(pid);
      continue;
    }
    const auto self = static_cast<std::size_t>(rank);
    TcpPort port({"127.0.0.1"}, 0, 0, {.silence = silence});
    Card mine = {this_process().pid, this_process().start, {}};
    std::strcpy(mine.endpoint, port.endpoints()[0].c_str());
    CHECK(::write(up[self][1], &mine, sizeof(mine)) == sizeof(mine));
    std::vector<ProcessIdentity> all;
    for (int i = 0; i < size; ++i) {
      Card card;
      CHECK(::read(down[self][0], &card, sizeof(card)) == sizeof(card));
      all.push_back({this_process().host, card.pid, card.start, card.endpoint});
    }
    port.start(TcpRanks::kSecret);
    body(rank, port, Membership{"test", rank, std::move(all)});
    port.close();
    ::_exit(0);
  }
  std::vector<Card> cards(count);
  for (std::size_t i = 0; i < count; ++i)
    CHECK(::read(up[i][0], &cards[i], sizeof(Card)) == sizeof(Card));
  for (std::size_t i = 0; i < count; ++i)
    for (const Card& card : cards)
      CHECK(::write(down[i][1], &card, sizeof(card)) == sizeof(card));
  for (std::size_t i = 0; i < count; ++i)
    for (const int fd : {up[i][0], up[i][1], down[i][0], down[i][1]}) ::close(fd);
  return pids;
}

// Status 0: all checks of that process held.
void join_process(pid_t pid) {
  int status = 0;
  CHECK(::waitpid(pid, &status, 0) == pid);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void wait_until_stopped(pid_t pid) {
  int status = 0;
  CHECK(::waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
}

void test_processes_exchange_messages() {
  const auto pids = fork_ranks(
      3, TcpPort::kSilence, [](int rank, TcpPort& port, const Membership& members) {
        ProgressEngine engine(port.join(members, token(1), tuning), members, tuning);
        const int right = (rank + 1) % 3, left = (rank + 2) % 3;
        for (const std::size_t count :
             {std::size_t{2}, std::size_t{1000}, std::size_t{300'000}}) {
          std::vector<float> out = values(rank, count), in(count);
          for (int i = 0; i < 20; ++i) {
            std::fill(in.begin(), in.end(), -1.0f);
            const auto receive =
                engine.post_recv(buffer_of(in), left, i, soon().deadline);
            engine.send(buffer_of(out), right, i, soon());
            engine.wait(receive, soon(), ProgressEngine::AtEnd::GiveUp);
            CHECK(are_values(left, in));
          }
        }
        engine.flush(soon());
      });
  for (const pid_t pid : pids) join_process(pid);
}

// Rank 1 dies by `signal` once it has got a message; rank 0 waits for another.
void test_a_peer_that_ends_is_named(int signal, std::chrono::milliseconds silence,
                                    std::chrono::milliseconds limit) {
  const auto pids =
      fork_ranks(2, silence, [&](int rank, TcpPort& port, const Membership& members) {
        ProgressEngine engine(port.join(members, token(1), tuning), members, tuning);
        std::vector<float> data(1);
        if (rank == 1) {
          engine.recv(buffer_of(data), 0, 0, soon());
          engine.send(buffer_of(data), 0, 0, soon());
          engine.recv(buffer_of(data), 0, 1, soon());  // until it is ended
          ::_exit(3);
        }
        engine.send(buffer_of(data), 1, 0, soon());
        engine.recv(buffer_of(data), 1, 0, soon());
        const auto start = Deadline::Clock::now();
        CHECK(::kill(members.process(1).pid, signal) == 0);
        const Error error =
            error_of([&] { engine.recv(buffer_of(data), 1, 0, soon()); });
        CHECK(Deadline::Clock::now() - start < limit);
        CHECK(error.kind() == ErrorKind::RankFailed);
        CHECK(error.ranks() == std::vector<int>{1});
        ::kill(members.process(1).pid, SIGKILL);
      });
  join_process(pids[0]);
  CHECK(::waitpid(pids[1], nullptr, 0) == pids[1]);
}

// Rank 1 is stopped until it is given up. When it goes on, it names itself, whether the
// other one is still there or not.
void test_who_was_given_up_says_so(bool is_other_there) {
  std::array<int, 2> done;
  CHECK(::pipe(done.data()) == 0);
  const auto pids = fork_ranks(
      2, std::chrono::milliseconds(500),
      [&](int rank, TcpPort& port, const Membership& members) {
        ProgressEngine engine(port.join(members, token(1), tuning), members, tuning);
        std::vector<float> data(1);
        char byte = 0;
        if (rank == 0) {
          engine.send(buffer_of(data), 1, 0, soon());
          engine.recv(buffer_of(data), 1, 0, soon());
          CHECK(::kill(members.process(1).pid, SIGSTOP) == 0);
          const Error error =
              error_of([&] { engine.recv(buffer_of(data), 1, 0, soon()); });
          CHECK(error.ranks() == std::vector<int>{1});
          if (!is_other_there) return;
          CHECK(::kill(members.process(1).pid, SIGCONT) == 0);
          CHECK(::read(done[0], &byte, 1) == 1);
          return;
        }
        engine.recv(buffer_of(data), 0, 0, soon());
        engine.send(buffer_of(data), 0, 0, soon());
        const Error error =
            error_of([&] { engine.recv(buffer_of(data), 0, 1, soon()); });
        CHECK(error.kind() == ErrorKind::RankFailed);
        CHECK(error.ranks() == std::vector<int>{1});
        CHECK(has(error, "rank 1 was given up"));
        CHECK(::write(done[1], &byte, 1) == 1);
      });
  join_process(pids[0]);
  if (!is_other_there) CHECK(::kill(pids[1], SIGCONT) == 0);
  join_process(pids[1]);
  ::close(done[0]);
  ::close(done[1]);
}

// Rank 0 is stopped while it makes its connection anew, which rank 1 holds up: it is
// stopped, too. Both go on, and nobody counts as dead.
void test_a_stop_amid_a_dial_is_no_silence_of_the_peer() {
  constexpr std::chrono::seconds kSilent{2};
  std::array<int, 2> go;
  CHECK(::pipe(go.data()) == 0);
  const auto pids =
      fork_ranks(2, kSilent, [&](int rank, TcpPort& port, const Membership& members) {
        ProgressEngine engine(port.join(members, token(1), tuning), members, tuning);
        std::vector<float> data(1);
        if (rank == 0) {
          engine.recv(buffer_of(data), 1, 0, soon());
          const std::vector<int> before = connected_sockets();
          char byte = 0;
          CHECK(::read(go[0], &byte, 1) == 1);
          CHECK(port.break_socket(members.process(1)));
          wait_until([&] { return has_more(connected_sockets(), before); });
          CHECK(::raise(SIGSTOP) == 0);
          engine.send(buffer_of(data), 1, 0, soon());
        } else {
          engine.send(buffer_of(data), 0, 0, soon());
          engine.flush(soon());
          CHECK(::raise(SIGSTOP) == 0);
          engine.recv(buffer_of(data), 0, 0, soon());
        }
        engine.flush(soon());
      });
  wait_until_stopped(pids[1]);
  CHECK(::write(go[1], "", 1) == 1);
  wait_until_stopped(pids[0]);
  std::this_thread::sleep_for(kSilent + kSilent / 2);
  for (const pid_t pid : pids) CHECK(::kill(pid, SIGCONT) == 0);
  for (const pid_t pid : pids) join_process(pid);
  ::close(go[0]);
  ::close(go[1]);
}

// What a dead process has forked holds none of its connections open.
void test_children_do_not_hide_a_death() {
  const auto pids = fork_ranks(
      2, std::chrono::hours(1),
      [&](int rank, TcpPort& port, const Membership& members) {
        ProgressEngine engine(port.join(members, token(1), tuning), members, tuning);
        std::vector<float> data(1);
        if (rank == 1) {
          engine.recv(buffer_of(data), 0, 0, soon());
          const pid_t child = ::fork();
          if (child == 0) {
            CHECK_THROWS(port.join(members, token(2), tuning), Error);
            port.close();
            ::alarm(200);
            ::pause();
          }
          data[0] = static_cast<float>(child);  // exact: below 2^24
          engine.send(buffer_of(data), 0, 0, soon());
          engine.recv(buffer_of(data), 0, 1, soon());  // until it is ended
          ::_exit(3);
        }
        engine.send(buffer_of(data), 1, 0, soon());
        engine.recv(buffer_of(data), 1, 0, soon());
        const auto child = static_cast<pid_t>(data[0]);
        CHECK(::kill(members.process(1).pid, SIGKILL) == 0);
        const Error error = error_of([&] {
          engine.recv(buffer_of(data), 1, 0, within(std::chrono::seconds(100)));
        });
        CHECK(error.kind() == ErrorKind::RankFailed);
        // Reset if it had not read the last beat.
        CHECK(has(error, "closed the connection") ||
              has(error, "Connection reset by peer"));
        CHECK(::kill(child, SIGKILL) == 0);
      });
  join_process(pids[0]);
  CHECK(::waitpid(pids[1], nullptr, 0) == pids[1]);
}

}  // namespace

int main() {
  test_processes_exchange_messages();  // first: forks want no other thread
  test_a_peer_that_ends_is_named(SIGKILL, TcpPort::kSilence, std::chrono::seconds(4));
  test_a_peer_that_ends_is_named(SIGSTOP, std::chrono::seconds(2),
                                 std::chrono::seconds(20));
  test_who_was_given_up_says_so(true);
  test_who_was_given_up_says_so(false);
  test_a_stop_amid_a_dial_is_no_silence_of_the_peer();
  test_children_do_not_hide_a_death();
  test_two_that_connect_at_the_same_time_share_one_connection();
  test_groups_share_a_connection();
  test_what_comes_before_the_group_is_joined_is_kept();
  test_who_left_says_so_to_who_comes_later();
  test_an_abort_carries_its_error();
  test_an_abort_takes_few_descriptors();
  test_an_abort_reaches_each_host();
}
