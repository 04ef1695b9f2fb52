#include "allhands/transport/tcp/handshake.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "allhands/base/error.hpp"
#include "allhands/base/random.hpp"
#include "allhands/net/little_endian.hpp"
#include "allhands/net/sha256.hpp"
#include "allhands/transport/tcp/frame.hpp"

namespace allhands {
namespace {

constexpr std::string_view kMagic = "ahpeers\n";  // a text protocol would end its line
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kNonceBytes = 32;
constexpr std::size_t kHelloHead = 8 + 4 + 4 + 4 + kNonceBytes;
constexpr std::size_t kProofBytes = sizeof(Digest);
constexpr std::uint32_t kAccepted = 1;
constexpr std::uint32_t kBusy = 2;

}  // namespace

Handshake::Handshake(UnforkedFd socket, std::string_view secret,
                     const ProcessName& self, bool is_dialer)
    : socket_(std::move(socket)), secret_(secret), self_(self), is_dialer_(is_dialer) {
  expect(Step::HelloHead, kHelloHead);
}

Handshake Handshake::dial(UnforkedFd socket, std::string_view secret,
                          const ProcessName& self, const ProcessName& peer) {
  Handshake made(std::move(socket), secret, self, true);
  made.peer_ = peer;
  made.say_hello();
  return made;
}

Handshake Handshake::listen(UnforkedFd socket, std::string_view secret,
                            const ProcessName& self) {
  return Handshake(std::move(socket), secret, self, false);
}

void Handshake::say_hello() {
  mine_ = kMagic;
  append_little_endian(mine_, kVersion);
  append_little_endian(mine_, static_cast<std::uint32_t>(self_.size()));
  append_little_endian(mine_, static_cast<std::uint32_t>(peer_.size()));
  mine_ += random_bytes(kNonceBytes) + self_ + peer_;
  send(mine_);
}

// A few bytes on a new socket: they fit, or something is wrong.
void Handshake::send(std::string_view bytes) {
  const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(bytes.size())) fail(errno_text(errno));
}

void Handshake::expect(Step step, std::size_t bytes) {
  step_ = step;
  expected_ = bytes;
  received_.clear();
}

void Handshake::fail(const std::string& problem) {
  state_ = State::Failed;
  problem_ = problem;
}

Handshake::State Handshake::advance() {
  while (state_ == State::Going && receive()) handle();
  return state_;
}

// Never more than the step's bytes: what follows the last is no handshake. True: they
// are all there.
bool Handshake::receive() {
  char bytes[2 * kMaxName];
  while (received_.size() < expected_) {
    const std::size_t wanted = std::min(sizeof(bytes), expected_ - received_.size());
    const ssize_t count = ::recv(socket_.get(), bytes, wanted, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (count == 0) fail("it closed the connection; has it the same secret?");
    if (count < 0) fail(errno_text(errno));
    if (count <= 0) return false;
    received_.append(bytes, static_cast<std::size_t>(count));
    // Nobody else is waited for to say all of what is no hello.
    const std::size_t known = std::min(received_.size(), kMagic.size());
    if (step_ == Step::HelloHead &&
        std::string_view(received_).substr(0, known) != kMagic.substr(0, known)) {
      fail("what answers is no process of ours");
      return false;
    }
  }
  return true;
}

void Handshake::handle() {
  switch (step_) {
    case Step::HelloHead:
      return handle_hello_head();
    case Step::HelloNames:
      return handle_hello_names();
    case Step::Proof:
      return handle_proof();
    case Step::Verdict:
      return handle_verdict();
    case Step::Ready:
      return handle_ready();
  }
}

void Handshake::handle_hello_head() {
  theirs_ = received_;
  const auto version = read_little_endian<std::uint32_t>(theirs_.data() + 8);
  const auto from = read_little_endian<std::uint32_t>(theirs_.data() + 12);
  const auto to = read_little_endian<std::uint32_t>(theirs_.data() + 16);
  if (version != kVersion)
    return fail("it speaks version " + std::to_string(version) +
                " of the protocol, this process version " + std::to_string(kVersion) +
                ": install the same release of allhands on every host");
  if (from > kMaxName || to > kMaxName) return fail("its name is too long");
  expect(Step::HelloNames, from + to);
  if (expected_ == 0) fail("it has no name");
}

void Handshake::handle_hello_names() {
  const auto from = read_little_endian<std::uint32_t>(theirs_.data() + 12);
  theirs_ += received_;
  const std::string who = received_.substr(0, from);
  const std::string whom = received_.substr(from);
  if (is_dialer_ && who != peer_) {
    state_ = State::Unwanted;
    problem_ = "another process listens there now";
    return;
  }
  peer_ = who;
  if (is_dialer_) {
    send(prove(true));
    return expect(Step::Verdict, 4 + kProofBytes);
  }
  // Who wants another process learns who is here instead, and goes.
  say_hello();
  if (whom != self_) return fail("it wants another process");
  expect(Step::Proof, kProofBytes);
}

std::string Handshake::prove(bool as_dialer) const {
  std::string message(as_dialer ? "allhands peers dialer" : "allhands peers listener");
  message += is_dialer_ ? mine_ + theirs_ : theirs_ + mine_;
  return std::string(as_view(hmac_sha256(secret_, message)));
}

void Handshake::handle_proof() {
  if (!is_equal_constant_time(received_, prove(true)))
    return fail("it does not know the job's secret");
  state_ = State::Asks;
}

Handshake::State Handshake::answer(bool is_accepted) {
  state_ = State::Going;
  std::string verdict;
  append_little_endian(verdict, is_accepted ? kAccepted : kBusy);
  send(verdict + prove(false));
  if (state_ == State::Going && !is_accepted) fail("it has a connection already");
  expect(Step::Ready, sizeof(FrameHead));
  return advance();
}

void Handshake::handle_verdict() {
  const auto verdict = read_little_endian<std::uint32_t>(received_.data());
  if (!is_equal_constant_time(std::string_view(received_).substr(4), prove(false)))
    return fail("it does not know the job's secret");
  if (verdict != kAccepted) {
    state_ = State::Busy;
    return;
  }
  const FrameHead ready = {0, FrameKind::Ready, 0, 0, 0, 0, 0};
  send({reinterpret_cast<const char*>(&ready), sizeof(ready)});
  expect(Step::Ready, sizeof(FrameHead));
}

void Handshake::handle_ready() {
  FrameHead head;
  std::memcpy(&head, received_.data(), sizeof(head));
  if (head.kind != FrameKind::Ready || head.length != 0 || head.number != 0)
    return fail("its first frame makes no sense");
  if (!is_dialer_) {
    const FrameHead ready = {0, FrameKind::Ready, 0, 0, 0, 0, 0};
    send({reinterpret_cast<const char*>(&ready), sizeof(ready)});
  }
  if (state_ == State::Going) state_ = State::Done;
}

}  // namespace allhands
