// Who else may be at the other end of a connection: strangers, processes of another
// job, broken ones, and nobody.
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "allhands/net/address.hpp"
#include "allhands/net/listener.hpp"
#include "allhands/net/socket.hpp"
#include "allhands/transport/tcp/channel.hpp"
#include "allhands/transport/tcp/dial.hpp"
#include "allhands/transport/tcp/frame.hpp"
#include "allhands/transport/tcp/handshake.hpp"
#include "transports.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

const std::string kSecret(reinterpret_cast<const char*>(TcpRanks::kSecret.data()),
                          TcpRanks::kSecret.size());

Fd connect_to_port(TcpPort& port) {
  const std::string& endpoint = port.endpoints()[0];
  const auto number = std::stoi(endpoint.substr(endpoint.rfind(':') + 1));
  std::string problem;
  Fd socket =
      connect_to(*literal_address("127.0.0.1", static_cast<std::uint16_t>(number)),
                 soon(), problem);
  CHECK(socket.is_open());
  return socket;
}

// Unless the other side closes it.
void write_all(int fd, const void* bytes, std::size_t count) {
  const char* const begin = static_cast<const char*>(bytes);
  for (std::size_t done = 0; done < count;) {
    const ssize_t sent = ::send(fd, begin + done, count - done, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) return;
    if (sent > 0) done += static_cast<std::size_t>(sent);
    if (sent < 0) CHECK(wait_ready(fd, Direction::Write, soon()));
  }
}

// Waits until the other side has closed it; what came before does not matter.
void wait_closed(int fd) {
  char bytes[4096];
  ssize_t count = 0;
  do {
    CHECK(wait_ready(fd, Direction::Read, soon()));
    count = ::recv(fd, bytes, sizeof(bytes), 0);
  } while (count > 0 || (count < 0 && errno == EINTR));
}

// Two ranks of the job still reach each other.
void check_works(TcpRanks& ranks) {
  static int number = 0;
  const TcpPort::GroupToken token = {static_cast<std::byte>(++number), std::byte{9}};
  const auto a = ranks.join(0, token), b = ranks.join(1, token);
  std::byte* const record = a->link(1).reserve(8);
  std::memset(record, number, 8);
  a->link(1).commit();
  a->link(1).wake_peer();
  wait_until([&] { return b->link(0).has_record(); });
  CHECK(b->link(0).front()[7] == static_cast<std::byte>(number));
}

void test_strangers_are_shown_out() {
  TcpRanks ranks(2);
  const std::string text = "GET / HTTP/1.1\r\nHost: here\r\n\r\n";
  const Fd talker = connect_to_port(ranks.port(0));
  write_all(talker.get(), text.data(), text.size());
  wait_closed(talker.get());
  // The right beginning, and then names that would take all memory.
  std::string hello = "ahpeers\n";
  hello += std::string("\2\0\0\0", 4) + std::string(8, '\xff') + std::string(40, 'n');
  const Fd liar = connect_to_port(ranks.port(0));
  write_all(liar.get(), hello.data(), hello.size());
  wait_closed(liar.get());
  check_works(ranks);
}

// Also where they are more than a port listens to at a time.
void test_silent_strangers_keep_nobody_out() {
  TcpRanks ranks(2);
  std::vector<Fd> strangers;
  for (int i = 0; i < 300; ++i) strangers.push_back(connect_to_port(ranks.port(1)));
  check_works(ranks);
  wait_closed(strangers[0].get());
  wait_closed(strangers[299].get());  // its time is up
}

void advance(Handshake& handshake) {
  while (handshake.advance() == Handshake::State::Going)
    CHECK(wait_ready(handshake.fd(), Direction::Read, soon()));
}

// Who knows another secret learns nothing and is not heard.
void test_another_secret_is_refused() {
  TcpRanks ranks(2);
  const auto transport = ranks.join(0);
  const ProcessIdentity self = ranks.members(0).process(0);
  const ProcessName name = name_of(self.endpoints, self.pid, self.start);
  Handshake handshake = Handshake::dial(UnforkedFd(connect_to_port(ranks.port(0))),
                                        {"another"}, "127.0.0.1:1 1 1", name);
  advance(handshake);
  CHECK(handshake.state() == Handshake::State::Failed);
  CHECK(handshake.problem().find("the same secret") != std::string::npos);
  check_works(ranks);
}

// Passes on what either side of `near` and `far` sends, until one closes; spoils the
// last byte of the second message from `far`.
void relay(const Fd& near, const Fd& far) {
  char bytes[4096];
  for (int num_answers = 0;;) {
    pollfd entries[] = {{near.get(), POLLIN, 0}, {far.get(), POLLIN, 0}};
    CHECK(poll(entries, 2, -1) > 0);
    const bool is_answer = entries[1].revents != 0;
    const ssize_t count = recv(is_answer ? far.get() : near.get(), bytes, 4096, 0);
    if (count <= 0) return;
    if (is_answer && ++num_answers == 2) bytes[count - 1] ^= 1;
    write_all(is_answer ? near.get() : far.get(), bytes,
              static_cast<std::size_t>(count));
  }
}

// Who says that all is well and does not prove that it knows the secret.
void test_an_answer_without_a_proof_is_refused() {
  TcpRanks ranks(2);
  const auto transport = ranks.join(0);
  int ends[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  std::thread between(
      [near = Fd(ends[1]), far = connect_to_port(ranks.port(0))] { relay(near, far); });
  {
    const ProcessIdentity self = ranks.members(0).process(0);
    Handshake handshake = Handshake::dial(
        UnforkedFd(Fd(ends[0])), {kSecret}, name_of("127.0.0.1:1", 1, 1),
        name_of(self.endpoints, self.pid, self.start));
    advance(handshake);
    CHECK(handshake.state() == Handshake::State::Failed);
    CHECK(handshake.problem().find("does not know the job's secret") !=
          std::string::npos);
  }
  between.join();
}

// An attempt to reach rank 0 by a process of the job, up to the answer. The process
// knows of `num_sockets` that their connection has had.
Handshake dial(TcpRanks& ranks, std::uint64_t num_sockets) {
  const ProcessIdentity self = ranks.members(0).process(0);
  Handshake handshake =
      Handshake::dial(UnforkedFd(connect_to_port(ranks.port(0))), {kSecret},
                      name_of("127.0.0.1:1", 1, 1),
                      name_of(self.endpoints, self.pid, self.start), num_sockets);
  advance(handshake);
  return handshake;
}

// A process of the job, as rank 1 of a group of rank 0's, that may say anything.
class Rogue {
 public:
  // So many attempts before, of whose success it has learnt nothing.
  explicit Rogue(int num_lost = 0) : ranks_(2) {
    Membership members = ranks_.members(0);
    std::vector<ProcessIdentity> all = members.peers.all();
    all[1] = {all[0].host, 1, 1, "127.0.0.1:1"};
    members.peers = std::move(all);
    transport_ = ranks_.port(0).join(members, {}, Tuning::for_ranks(2));
    std::vector<Handshake> lost;
    for (int i = 0; i < num_lost; ++i) {
      lost.push_back(dial(ranks_, 0));
      CHECK(lost.back().state() == Handshake::State::Accepted);
      lost.back().take_up(0);
      CHECK(wait_ready(lost.back().fd(), Direction::Read, soon()));
    }
    Handshake handshake = dial(ranks_, 0);
    CHECK(handshake.state() == Handshake::State::Accepted);
    handshake.take_up(0);
    advance(handshake);
    CHECK(handshake.state() == Handshake::State::Done);
    CHECK(handshake.number() == static_cast<std::uint64_t>(num_lost) + 1);
    wire_ = handshake.take_wire();
    transport_->link(1);  // it says on which channel
    FrameHead join;
    do {
      CHECK(wait_ready(wire_.fd(), Direction::Read, soon()));
      CHECK(::recv(wire_.fd(), &join, sizeof(join), 0) == sizeof(join));
    } while (join.kind == FrameKind::Beat);
    CHECK(join.kind == FrameKind::Join);
    head = {8, FrameKind::Record, join.channel, 1, 0, 0, 0};
  }

  void write(const void* bytes, std::size_t count) {
    write_all(wire_.fd(), bytes, count);
  }
  void write_frame(std::size_t length) {
    head.length = static_cast<std::uint32_t>(length);
    std::vector<std::byte> frame(sizeof(head) + padded(length));
    std::memcpy(frame.data(), &head, sizeof(head));
    write(frame.data(), frame.size());
    ++head.number;
  }
  void check_lost(const std::string& why) {
    wait_until([&] { return !transport_->is_alive(1); });
    CHECK(transport_->end_of(1).find(why) != std::string::npos);
    wait_closed(wire_.fd());
    check_works(ranks_);
  }
  TcpRanks& ranks() { return ranks_; }
  Transport& transport() { return *transport_; }

  FrameHead head = {};  // of a record that would be taken

 private:
  TcpRanks ranks_;
  std::unique_ptr<Transport> transport_;
  Wire wire_;
};

void test_senseless_frames_end_their_connection_only() {
  {
    Rogue rogue;
    rogue.write_frame(8);
    wait_until([&] { return rogue.transport().link(1).has_record(); });
    const std::string noise(1000, '\x5a');
    rogue.write(noise.data(), noise.size());
    rogue.check_lost("a frame makes no sense");
  }
  {
    Rogue rogue;
    rogue.head.length = 0xffffffff;  // no memory is taken for it
    rogue.write(&rogue.head, sizeof(rogue.head));
    rogue.check_lost("its length is 4294967295");
  }
  {
    Rogue rogue;
    rogue.head.number = 2;
    rogue.write_frame(8);
    rogue.check_lost("its number is 2");
  }
  {
    Rogue rogue;
    rogue.head.popped = 1;  // nothing was sent to it
    rogue.write_frame(8);
    rogue.check_lost("it has popped 1 bytes");
  }
  {
    Rogue rogue;
    for (int i = 0; i < 20; ++i) rogue.write_frame(Channel::kMaxRecord);
    rogue.check_lost("may have 2097152");
  }
  {
    Rogue rogue;
    rogue.head.kind = FrameKind::Presence;
    rogue.write_frame(300);
    rogue.check_lost("what a rank says of itself");
  }
}

// `rank 1` of a group is at `endpoint`.
std::unique_ptr<Transport> transport_to(TcpRanks& ranks, const std::string& endpoint) {
  Membership members = ranks.members(0);
  std::vector<ProcessIdentity> all = members.peers.all();
  all[1].endpoints = endpoint;
  members.peers = std::move(all);
  return ranks.port(0).join(members, {}, Tuning::for_ranks(2));
}

void test_who_cannot_be_reached_is_gone() {
  TcpRanks ranks(2, {.silence = std::chrono::seconds(1)});
  const std::string taken = ranks.port(1).endpoints()[0];
  ranks.port(1).close();
  const auto refused = transport_to(ranks, taken);
  wait_until([&] { return !refused->is_alive(1); });
  CHECK(refused->end_of(1).find("it cannot be reached at " + taken) == 0);
  CHECK(refused->end_of(1).find("refused") != std::string::npos);

  // The kernel takes the connection, and nobody answers.
  const std::vector<Fd> silent = listen_on("127.0.0.1", 0, soon());
  const std::string text = local_address(silent[0].get()).text();
  const auto mute = transport_to(ranks, text);
  wait_until([&] { return !mute->is_alive(1); });
  CHECK(mute->end_of(1).find("it does not answer") != std::string::npos);

  const auto nowhere = transport_to(ranks, "nonsense");
  wait_until([&] { return !nowhere->is_alive(1); });
}

// A process that listens where another did is not taken for that one.
void test_a_successor_is_no_peer() {
  TcpRanks ranks(2);
  Membership members = ranks.members(0);
  std::vector<ProcessIdentity> all = members.peers.all();
  all[1].start += 1;
  members.peers = std::move(all);
  const auto transport = ranks.port(0).join(members, {}, Tuning::for_ranks(2));
  wait_until([&] { return !transport->is_alive(1); });
  CHECK(transport->end_of(1).find("another process listens") != std::string::npos);
}

// Who never learns that it was accepted comes again, however often, and is let in. What
// it asked for before it had its last socket is late.
void test_answers_that_were_lost() {
  Rogue rogue(4);
  rogue.write_frame(8);
  wait_until([&] { return rogue.transport().link(1).has_record(); });
  CHECK(dial(rogue.ranks(), 0).state() == Handshake::State::Busy);
  CHECK(dial(rogue.ranks(), 1).state() == Handshake::State::Busy);
  CHECK(dial(rogue.ranks(), 5).state() == Handshake::State::Accepted);
}

// Without a descriptor for a moment, neither side gives up.
void test_descriptors_run_out_for_a_moment() {
  TcpRanks ranks(2);
  const auto a = ranks.join(0), b = ranks.join(1);
  rlimit before = {};
  CHECK(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(Fd(::dup(0)).get());  // all below are taken
  CHECK(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  std::memset(a->link(1).reserve(8), 3, 8);
  a->link(1).commit();
  a->link(1).wake_peer();
  const Deadline enough = Deadline::after(std::chrono::milliseconds(300));
  while (!enough.is_expired()) CHECK(!b->link(0).has_record() && a->is_alive(1));
  none.rlim_cur += 1;  // one side gets its socket
  CHECK(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  const Deadline again = Deadline::after(std::chrono::milliseconds(300));
  while (!again.is_expired()) CHECK(a->is_alive(1) && b->is_alive(0));
  CHECK(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  wait_until([&] { return b->link(0).has_record(); });
  CHECK(b->link(0).front()[0] == std::byte{3});
}

}  // namespace

int main() {
  test_strangers_are_shown_out();
  test_silent_strangers_keep_nobody_out();
  test_another_secret_is_refused();
  test_an_answer_without_a_proof_is_refused();
  test_senseless_frames_end_their_connection_only();
  test_who_cannot_be_reached_is_gone();
  test_a_successor_is_no_peer();
  test_answers_that_were_lost();
  test_descriptors_run_out_for_a_moment();
}
