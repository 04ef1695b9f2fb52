// How ranks come to share one segment, and no second one. Ranks are threads of this
// process, or forked where they need a limit of their own.
#include "allhands/comm/bootstrap.hpp"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "allhands/base/random.hpp"
#include "allhands/net/socket.hpp"
#include "ranks.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

constexpr std::size_t kBytes = 4096;

Token fresh_token() {
  Token token;
  random_bytes(token.size()).copy(reinterpret_cast<char*>(token.data()), token.size());
  return token;
}

// A segment made for `mark` begins with it.
Segment open_marked(const Membership& member, const Token& token, char mark) {
  const auto prepare = [mark](SharedMemory& memory) {
    *memory.data() = std::byte(mark);
  };
  return open_segment(kBytes, prepare, member, token, soon());
}

Segment open_marked(int rank, int size, const Token& token, char mark) {
  return open_marked(membership(rank, size), token, mark);
}

char mark_of(const Segment& segment) {
  return static_cast<char>(*segment.memory->data());
}

// What the group's socket would be to somebody who is no SegmentServer.
Fd bind_name_of(const Token& token) {
  const segment::SocketName name(segment_name(token));
  Fd listener = segment::make_socket();
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&name.value),
           name.length) != 0)
    return Fd();
  CHECK(listen(listener.get(), 8) == 0);
  return listener;
}

Fd accept_at(const Fd& listener) {
  CHECK(wait_ready(listener.get(), Direction::Read, soon()));
  return accept_from(listener.get());
}

Fd connect_to_name_of(const Token& token) {
  const segment::SocketName name(segment_name(token));
  Fd connection = segment::make_socket();
  while (connect(connection.get(), reinterpret_cast<const sockaddr*>(&name.value),
                 name.length) != 0)
    CHECK(errno == EAGAIN);
  return connection;
}

template <class Record>
Record receive(const Fd& connection) {
  Record record;
  CHECK(wait_ready(connection.get(), Direction::Read, soon()));
  CHECK(recv(connection.get(), &record, sizeof(record), 0) == sizeof(record));
  return record;
}

// Whether the other side closes it, or has.
bool is_closed(const Fd& connection) {
  char byte;
  return wait_ready(connection.get(), Direction::Read, soon()) &&
         recv(connection.get(), &byte, 1, 0) == 0;
}

segment::Hello hello_of(int rank, const Token& token) {
  segment::Hello hello = {rank, {}, {}};
  hello.proof = segment::joiner_proof(token, rank, hello.nonce);
  return hello;
}

// Runs `body` in a child, which must return true.
void in_a_child(const std::function<bool()>& body) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) _exit(body() ? 0 : 1);
  int status = 1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

void test_all_ranks_get_the_segment_of_the_first() {
  const Token token = fresh_token();
  const Segment first = open_marked(0, 3, token, 'a');
  CHECK(first.server != nullptr);
  for (const int rank : {2, 1}) {
    const Segment later = open_marked(rank, 3, token, 'b');
    CHECK(mark_of(later) == 'a' && later.server == nullptr);
  }
}

// Which leaves its name to somebody else at once.
void test_the_server_ends_when_all_have_it() {
  const Token token = fresh_token();
  const Segment first = open_marked(0, 2, token, 'a');
  CHECK(mark_of(open_marked(1, 2, token, 'b')) == 'a');
  while (!bind_name_of(token).is_open()) std::this_thread::yield();
}

void test_who_does_not_know_the_token_gets_nothing() {
  const Token token = fresh_token();
  const Segment first = open_marked(0, 2, token, 'a');
  const auto refuses = [&](const segment::Hello& hello) {
    const Fd connection = connect_to_name_of(token);
    CHECK(segment::send_record(connection, &hello, sizeof(hello)));
    return is_closed(connection);
  };
  CHECK(refuses(hello_of(1, fresh_token())));
  CHECK(refuses(hello_of(2, token)) && refuses(hello_of(-1, token)));
  segment::Hello of_another_rank = hello_of(1, token);
  of_another_rank.rank = 0;
  CHECK(refuses(of_another_rank));
  const Fd talkative = connect_to_name_of(token);
  CHECK(segment::send_record(talkative, "?", 1) && is_closed(talkative));
  CHECK(mark_of(open_marked(1, 2, token, 'b')) == 'a');
}

void test_a_server_that_does_not_know_the_token_is_refused() {
  const Token token = fresh_token();
  std::thread impostor([&token, listener = bind_name_of(token)] {
    const Fd connection = accept_at(listener);
    const auto hello = receive<segment::Hello>(connection);
    const auto memory = SharedMemory::create(kBytes);
    segment::send_answer(
        connection, {segment::server_proof(fresh_token(), hello.nonce)}, memory->fd());
    CHECK(is_closed(connection));
  });
  const Error error = error_of([&] { open_marked(1, 2, token, 'b'); });
  CHECK(error.kind() == ErrorKind::Backend);
  CHECK(has(error, "does not know the group's token"));
  impostor.join();
}

// It does not know whether another took over meanwhile with another segment.
void test_a_rank_whose_server_died_before_it_was_counted_asks_again() {
  const Token token = fresh_token();
  std::thread server([&token, listener = bind_name_of(token)]() mutable {
    const Fd connection = accept_at(listener);
    const auto hello = receive<segment::Hello>(connection);
    {
      const auto memory = SharedMemory::create(kBytes);
      segment::send_answer(connection, {segment::server_proof(token, hello.nonce)},
                           memory->fd());
    }
    CHECK(receive<char>(connection) == segment::kTaken);
    listener.reset();  // and dies
  });
  CHECK(mark_of(open_marked(1, 2, token, 'b')) == 'b');
  server.join();
}

// Without a free descriptor the one that was sent is lost.
void test_a_rank_without_descriptors_may_try_again() {
  const Token token = fresh_token();
  const Segment first = open_marked(0, 3, token, 'a');
  in_a_child([&] {
    rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
    const int next = Fd(dup(0)).get();
    const rlimit room_for_a_socket = {static_cast<rlim_t>(next) + 1, limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &room_for_a_socket) != 0) return false;
    const Error error = error_of([&] { open_marked(1, 3, token, 'b'); });
    const std::string text = error.what();
    const std::string told = "this process may have " + std::to_string(next + 1);
    if (text.find(told) == std::string::npos ||
        text.find("`ulimit -n`") == std::string::npos)
      return false;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0 &&
           mark_of(open_marked(1, 3, token, 'c')) == 'a';
  });
  CHECK(mark_of(open_marked(2, 3, token, 'd')) == 'a');
}

void test_a_late_rank_joins_those_whose_maker_has_left() {
  const Token token = fresh_token();
  Segment first = open_marked(0, 3, token, 'a');
  const Segment second = open_marked(1, 3, token, 'b');
  first = {};
  while (!bind_name_of(token).is_open())  // it is handed out a few seconds more
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const Segment third = open_marked(2, 3, token, 'c');
  CHECK(mark_of(third) == 'a' && third.server != nullptr);
}

void test_who_cannot_look_for_the_segment_makes_none() {
  const Token token = fresh_token();
  const auto lost = SharedMemory::create(kBytes, segment_name(token));
  *lost->data() = std::byte{'a'};
  const ProcessIdentity parent = this_process();
  in_a_child([&] {
    const Membership member = {"test", 1, std::vector{parent, this_process()}};
    rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
    const int next = Fd(dup(0)).get();
    // One for the socket, one to look at the folder, none to open
    // what is there.
    const rlimit room = {static_cast<rlim_t>(next) + 2, limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &room) != 0) return false;
    const Error error = error_of([&] { open_marked(member, token, 'b'); });
    if (!has(error, "looking for memory of process " + std::to_string(parent.pid)))
      return false;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0 &&
           mark_of(open_marked(member, token, 'b')) == 'a';
  });
}

// How long it takes until of many silent connections the oldest have made room.
std::chrono::steady_clock::duration time_to_make_room(const Token& token,
                                                      std::vector<Fd>& silent) {
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < 3 * SegmentServer::kMaxStrangers; ++i)
    silent.push_back(connect_to_name_of(token));
  for (std::size_t i = 0; i < 2 * SegmentServer::kMaxStrangers; ++i)
    CHECK(is_closed(silent[i]));
  return std::chrono::steady_clock::now() - start;
}

void test_silent_connections_do_not_keep_a_rank_out() {
  const Token token = fresh_token();
  const Segment first = open_marked(0, 2, token, 'a');
  std::vector<Fd> silent;
  // A slow machine may take the time after which any silent one is dropped.
  int tries = 5;
  while (time_to_make_room(token, silent) > SegmentServer::kSilence) {
    CHECK(--tries > 0);
    silent.clear();
  }
  CHECK(is_closed(silent.back()));  // in time
  CHECK(mark_of(open_marked(1, 2, token, 'b')) == 'a');
}

}  // namespace

int main() {
  test_all_ranks_get_the_segment_of_the_first();
  test_the_server_ends_when_all_have_it();
  test_who_does_not_know_the_token_gets_nothing();
  test_a_server_that_does_not_know_the_token_is_refused();
  test_a_rank_whose_server_died_before_it_was_counted_asks_again();
  test_a_rank_without_descriptors_may_try_again();
  test_a_late_rank_joins_those_whose_maker_has_left();
  test_who_cannot_look_for_the_segment_makes_none();
  test_silent_connections_do_not_keep_a_rank_out();
}
