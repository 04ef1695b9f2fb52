// Encrypted connections: who listens in reads nothing, who changes a byte changes
// nothing, and a full socket holds back what was encrypted until it has room.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "allhands/engine/progress_engine.hpp"
#include "allhands/net/socket.hpp"
#include "allhands/transport/tcp/handshake.hpp"
#include "allhands/transport/tcp/tls_session.hpp"
#include "transports.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

using Role = TlsSession::Role;
using Progress = TlsSession::Progress;

const std::string kKey(32, 'k');

// --- one session and its peer ---

struct Pair {
  Fd sockets[2];

  Pair() {
    int both[2];
    CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, both) == 0);
    for (int i = 0; i < 2; ++i) sockets[i] = Fd(both[i]);
  }
  int fd(int i) const { return sockets[i].get(); }
};

// How the handshake of both ends.
std::pair<Progress, Progress> shake(TlsSession& client, TlsSession& server) {
  Progress first = Progress::Going, second = Progress::Going;
  for (int turn = 0; turn < 4; ++turn) {
    if (first == Progress::Going) first = client.shake();
    if (second == Progress::Going) second = server.shake();
  }
  return {first, second};
}

iovec part_of(std::vector<std::byte>& bytes, std::size_t from = 0) {
  return {bytes.data() + from, bytes.size() - from};
}

std::vector<std::byte> some_bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  return bytes;
}

void test_a_full_socket_holds_back() {
  Pair pair;
  TlsSession client(pair.fd(0), Role::Client, kKey);
  TlsSession server(pair.fd(1), Role::Server, kKey);
  CHECK(shake(client, server) == std::pair(Progress::Done, Progress::Done));

  std::vector<std::byte> out = some_bytes(3'000'001), in(out.size());
  std::size_t sent = 0, received = 0;
  bool was_full = false;
  while (received < out.size()) {
    while (sent < out.size()) {
      const iovec part = part_of(out, sent);
      const ssize_t count = client.send({&part, 1});
      if (count < 0) CHECK(errno == EAGAIN);
      if (count < 0) was_full = true;
      if (count <= 0) break;
      sent += static_cast<std::size_t>(count);
      CHECK(client.unconfirmed() <= sent);
    }
    const iovec part = part_of(in, received);
    const ssize_t count = server.receive({&part, 1});
    if (count > 0) received += static_cast<std::size_t>(count);
    client.flush();
  }
  CHECK(was_full && in == out);
  CHECK(client.flush() && client.unconfirmed() == 0u);
  const iovec part = part_of(in);
  CHECK(server.receive({&part, 1}) == -1 && errno == EAGAIN);
  pair.sockets[0].reset();
  CHECK(server.receive({&part, 1}) == 0);
}

void test_another_key_is_refused() {
  Pair pair;
  TlsSession client(pair.fd(0), Role::Client, kKey);
  TlsSession server(pair.fd(1), Role::Server, std::string(32, 'x'));
  shake(client, server);
  CHECK(client.problem().find("TLS handshake failed") != std::string::npos ||
        server.problem().find("TLS handshake failed") != std::string::npos);
}

// --- a relay on the way of two ranks ---

// Passes on what two processes say to each other, and keeps it. Changes one bit of
// each connection after so many bytes, where it is to.
class Relay {
 public:
  explicit Relay(std::size_t change_after) : change_after_(change_after) {}
  ~Relay() { stop(); }
  std::uint16_t port() const { return local_address(listener_.get()).port(); }
  void start(std::uint16_t to) {
    to_ = to;
    thread_ = std::thread([this] { run(); });
  }
  void stop() {
    is_over_ = true;
    if (thread_.joinable()) thread_.join();
  }
  int num_changes() const { return num_changes_; }
  // What has come by; once it was stopped.
  const std::string& seen() const { return seen_; }

 private:
  struct Pipe {
    Fd ends[2];
    std::size_t passed = 0;
  };

  void run() {
    while (!is_over_) {
      Fd incoming = accept_from(listener_.get());
      if (incoming.is_open()) begin(std::move(incoming));
      for (Pipe& pipe : pipes_)
        for (int from : {0, 1}) pass(pipe, from);
      std::this_thread::yield();
    }
  }
  void begin(Fd incoming) {
    int code = 0;
    Pipe pipe;
    pipe.ends[0] = std::move(incoming);
    pipe.ends[1] = start_connecting(*literal_address("127.0.0.1", to_), code);
    CHECK(pipe.ends[1].is_open());
    pipes_.push_back(std::move(pipe));
  }
  void pass(Pipe& pipe, int from) {
    char bytes[4096];
    if (!pipe.ends[from].is_open()) return;
    const ssize_t count =
        ::recv(pipe.ends[from].get(), bytes, sizeof(bytes), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN)) return;
    if (count <= 0) {
      for (Fd& end : pipe.ends) end.reset();
      return;
    }
    const auto length = static_cast<std::size_t>(count);
    seen_.append(bytes, length);
    const std::size_t at = pipe.passed;
    pipe.passed += length;
    if (change_after_ != 0 && at < change_after_ && pipe.passed >= change_after_) {
      bytes[change_after_ - at - 1] ^= 1;
      ++num_changes_;
    }
    for (std::size_t done = 0; done < length;) {
      const ssize_t sent = ::send(pipe.ends[1 - from].get(), bytes + done,
                                  length - done, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) done += static_cast<std::size_t>(sent);
      if (sent < 0 && errno != EAGAIN && errno != EINTR && errno != ENOTCONN) break;
    }
  }

  std::uint16_t to_ = 0;
  const std::size_t change_after_;
  Fd listener_ = listen_at(*literal_address("127.0.0.1", 0));
  std::vector<Pipe> pipes_;
  std::string seen_;
  std::atomic<int> num_changes_ = 0;
  std::atomic<bool> is_over_ = false;
  std::thread thread_;
};

// The ports at which this process listens.
std::vector<std::uint16_t> listening_ports() {
  std::vector<std::uint16_t> ports;
  for (int fd = 0; fd < 1024; ++fd) {
    int listens = 0;
    socklen_t size = sizeof(listens);
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens)
      ports.push_back(local_address(fd).port());
  }
  return ports;
}

// Two ranks whose ways to each other lead through relays.
class RelayedRanks {
 public:
  explicit RelayedRanks(bool is_encrypted, std::size_t change_after = 0)
      : relays_{Relay(change_after), Relay(change_after)} {
    for (Relay& relay : relays_) {
      const std::vector<std::uint16_t> before = listening_ports();
      ports_.push_back(std::make_unique<TcpPort>(
          std::vector<std::string>{"127.0.0.1"}, std::uint16_t{0}, std::uint16_t{0},
          TcpPort::Options{.advertised = {{"127.0.0.1", relay.port()}},
                           .is_encrypted = is_encrypted}));
      for (const std::uint16_t port : listening_ports())
        if (std::find(before.begin(), before.end(), port) == before.end())
          relay.start(port);
    }
    for (const auto& port : ports_) port->start(TcpRanks::kSecret);
  }
  Membership members(int rank) const { return members_at(ports_, rank); }
  std::unique_ptr<Transport> join(int rank) {
    return ports_[static_cast<std::size_t>(rank)]->join(members(rank), {},
                                                        Tuning::for_ranks(2));
  }
  int num_changes() const {
    return relays_[0].num_changes() + relays_[1].num_changes();
  }
  // All that the relays have passed on; nothing passes after it.
  std::string seen() {
    for (const auto& port : ports_) port->close();
    for (Relay& relay : relays_) relay.stop();
    return relays_[0].seen() + relays_[1].seen();
  }

 private:
  Relay relays_[2];
  Ports ports_;
};

const std::string kText = "nobody but the two ranks is to read these very words";

// Both ranks send each other the text, small and as a part of a large array.
void exchange(RelayedRanks& ranks, int rank) {
  ProgressEngine engine(ranks.join(rank), ranks.members(rank), Tuning::for_ranks(2));
  for (int round = 0; round < 3; ++round)
    for (const std::size_t count : {kText.size(), std::size_t{300'000}}) {
      std::vector<float> out(count, static_cast<float>(round)), in(count, -1.0f);
      std::memcpy(out.data(), kText.data(), kText.size());
      const TransferPtr receive =
          engine.post_recv(buffer_of(in), 1 - rank, 0, soon().deadline);
      engine.send(buffer_of(out), 1 - rank, 0, soon());
      engine.wait(receive, soon(), ProgressEngine::AtEnd::GiveUp);
      CHECK(std::memcmp(in.data(), out.data(), count * sizeof(float)) == 0);
    }
  engine.flush(soon());
}

void test_what_passes_cannot_be_read() {
  RelayedRanks plain(false), encrypted(true);
  run_ranks(2, [&](int rank) { exchange(plain, rank); });
  run_ranks(2, [&](int rank) { exchange(encrypted, rank); });
  CHECK(plain.seen().find(kText) != std::string::npos);
  CHECK(encrypted.seen().find(kText) == std::string::npos);
}

// Neither rank gets other data than was sent. The connection ends, since what a kernel
// has confirmed cannot be decrypted any more.
void test_who_changes_a_byte_ends_the_connection() {
  RelayedRanks ranks(true, 200'000);
  run_ranks(2, [&](int rank) {
    const Error error = error_of([&] { exchange(ranks, rank); });
    CHECK(error.kind() == ErrorKind::RankFailed);
  });
  CHECK(ranks.num_changes() > 0);
}

// --- what else may be there ---

void test_both_sides_encrypt_or_neither() {
  for (const bool dialer : {false, true}) {
    TcpPort port({"127.0.0.1"}, 0, 0, {.is_encrypted = !dialer});
    port.start(TcpRanks::kSecret);
    const std::string endpoint = port.endpoints()[0];
    int code = 0;
    const auto number = std::stoi(endpoint.substr(endpoint.rfind(':') + 1));
    Fd socket = start_connecting(
        *literal_address("127.0.0.1", static_cast<std::uint16_t>(number)), code);
    CHECK(socket.is_open() && wait_ready(socket.get(), Direction::Write, soon()));
    const ProcessIdentity self = this_process();
    Handshake handshake = Handshake::dial(
        UnforkedFd(std::move(socket)), {std::string(32, 's'), dialer},
        "127.0.0.1:1 1 1",
        endpoint + " " + std::to_string(self.pid) + " " + std::to_string(self.start));
    while (handshake.advance() == Handshake::State::Going)
      wait_ready(handshake.fd(), Direction::Read, soon());
    CHECK(handshake.state() == Handshake::State::Failed);
    CHECK(handshake.problem().find("set ALLHANDS_TLS alike") != std::string::npos);
  }
}

}  // namespace

int main() {
  test_a_full_socket_holds_back();
  test_another_key_is_refused();
  test_what_passes_cannot_be_read();
  test_who_changes_a_byte_ends_the_connection();
  test_both_sides_encrypt_or_neither();
}
