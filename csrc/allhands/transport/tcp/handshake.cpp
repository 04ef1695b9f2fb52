#include "allhands/transport/tcp/handshake.hpp"

#include <sys/socket.h>

#include <algorithm>
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

// The line end stops a server of a text protocol.
constexpr std::string_view kMagic = "ahpeers\n";
constexpr std::uint32_t kVersion = 6;
// Flags beside the version.
constexpr std::uint32_t kEncrypted = 1u << 16;
constexpr std::uint32_t kOffersUcx = 1u << 17;
constexpr std::uint32_t kNeedsUcx = 1u << 18;
constexpr std::uint32_t kFlags = kEncrypted | kOffersUcx | kNeedsUcx;
constexpr std::size_t kNonceBytes = 32;
constexpr std::size_t kHelloHead = 8 + 4 + 4 + 4 + 8 + 4 + 4 + kNonceBytes;
constexpr std::size_t kProofBytes = sizeof(Digest);
constexpr std::uint32_t kAccepted = 1;

// Without strands, one socket carries everything.
std::string sockets_text(unsigned num_strands) {
  const unsigned count = std::max(num_strands, 1u);
  return std::to_string(count) + (count == 1 ? " socket" : " sockets") +
         " for large data";
}

}  // namespace

Handshake::Handshake(UnforkedFd socket, const Credentials& credentials,
                     const ProcessName& self, bool is_dialer)
    : socket_(std::move(socket)),
      credentials_(credentials),
      self_(self),
      is_dialer_(is_dialer) {
  expect(Step::HelloHead, kHelloHead);
}

Handshake Handshake::dial(UnforkedFd socket, const Credentials& credentials,
                          const ProcessName& self, const ProcessName& peer,
                          std::uint64_t num_sockets, unsigned strand) {
  Handshake made(std::move(socket), credentials, self, true);
  made.peer_ = peer;
  made.number_ = num_sockets;
  made.strand_ = strand;
  made.say_hello();
  return made;
}

Handshake Handshake::listen(UnforkedFd socket, const Credentials& credentials,
                            const ProcessName& self) {
  return Handshake(std::move(socket), credentials, self, false);
}

void Handshake::say_hello() {
  mine_ = kMagic;
  append_little_endian(mine_, kVersion | (credentials_.is_encrypted ? kEncrypted : 0) |
                                  (credentials_.ucx.empty() ? 0 : kOffersUcx) |
                                  (credentials_.needs_ucx ? kNeedsUcx : 0));
  append_little_endian(mine_, static_cast<std::uint32_t>(self_.size()));
  append_little_endian(mine_, static_cast<std::uint32_t>(peer_.size()));
  append_little_endian(mine_, is_dialer_ ? number_ : 0);
  append_little_endian(mine_, std::uint32_t{is_dialer_ ? strand_ : 0});
  append_little_endian(mine_, std::uint32_t{credentials_.num_strands});
  mine_ += random_bytes(kNonceBytes) + self_ + peer_;
  send(mine_);
}

// Sends a few bytes, for which a new socket always has room unless something is wrong.
void Handshake::send(std::string_view bytes) {
  const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(bytes.size())) fail(errno_text(errno));
}

void Handshake::expect(Step step, std::size_t bytes) {
  step_ = step;
  expected_ = bytes;
  came_.clear();
}

void Handshake::fail(const std::string& problem) {
  state_ = State::Failed;
  problem_ = problem;
}

Handshake::State Handshake::advance() {
  while (state_ == State::Going && step_ != Step::Tls && receive()) handle();
  if (state_ == State::Going && step_ == Step::Tls) advance_tls();
  return state_;
}

// Reads no more than the step's bytes, as those after the last step are no handshake.
// Returns true if all are there.
bool Handshake::receive() {
  char bytes[2 * kMaxName];
  while (came_.size() < expected_) {
    const std::size_t wanted = std::min(sizeof(bytes), expected_ - came_.size());
    const ssize_t count = ::recv(socket_.get(), bytes, wanted, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (count == 0) fail("it closed the connection; has it the same secret?");
    if (count < 0) fail(errno_text(errno));
    if (count <= 0) return false;
    came_.append(bytes, static_cast<std::size_t>(count));
    // Fails at the first wrong byte, rather than wait for the rest of what is no hello.
    const std::size_t known = std::min(came_.size(), kMagic.size());
    if (step_ == Step::HelloHead &&
        std::string_view(came_).substr(0, known) != kMagic.substr(0, known)) {
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
    case Step::Ucx:
      ucx_there_ = came_;
      return end_plain();
    case Step::Tls:  // OpenSSL reads it
      return;
  }
}

void Handshake::handle_hello_head() {
  theirs_ = came_;
  const auto version = read_little_endian<std::uint32_t>(theirs_.data() + 8);
  const auto from = read_little_endian<std::uint32_t>(theirs_.data() + 12);
  const auto to = read_little_endian<std::uint32_t>(theirs_.data() + 16);
  is_encrypted_there_ = (version & kEncrypted) != 0;
  offers_ucx_there_ = (version & kOffersUcx) != 0;
  needs_ucx_there_ = (version & kNeedsUcx) != 0;
  if ((version & ~kFlags) != kVersion)
    return fail("it speaks version " + std::to_string(version & ~kFlags) +
                " of the protocol, this process version " + std::to_string(kVersion) +
                ": install the same release of allhands on every host");
  if (from > kMaxName || to > kMaxName) return fail("its name is too long");
  if (!is_dialer_) {
    number_ = read_little_endian<std::uint64_t>(theirs_.data() + 20);
    strand_ = read_little_endian<std::uint32_t>(theirs_.data() + 28);
  }
  num_strands_there_ = read_little_endian<std::uint32_t>(theirs_.data() + 32);
  expect(Step::HelloNames, from + to);
  if (expected_ == 0) fail("it has no name");
}

void Handshake::handle_hello_names() {
  const auto from = read_little_endian<std::uint32_t>(theirs_.data() + 12);
  theirs_ += came_;
  const std::string who = came_.substr(0, from);
  const std::string whom = came_.substr(from);
  if (is_dialer_ && who != peer_) {
    state_ = State::Unwanted;
    problem_ = "another process listens there now";
    return;
  }
  peer_ = who;
  const std::string difference = this->difference();
  const bool is_alike = difference.empty();
  if (is_dialer_ && is_alike) {
    send(prove(true));
    return expect(Step::Verdict, 4 + kProofBytes);
  }
  // A dialer that wants another process, or differs in its settings, learns who is
  // here, and leaves.
  if (!is_dialer_) say_hello();
  if (!is_alike) return fail(difference);
  if (whom != self_) return fail("it wants another process");
  expect(Step::Proof, kProofBytes);
}

// What keeps the two processes from communicating; empty: nothing.
std::string Handshake::difference() const {
  if (is_encrypted_there_ != credentials_.is_encrypted)
    return std::string(is_encrypted_there_ ? "it" : "this process") +
           " encrypts its connections and " +
           (is_encrypted_there_ ? "this process" : "it") +
           " does not: set ALLHANDS_TLS alike on every host";
  if (num_strands_there_ != credentials_.num_strands)
    return "it uses " + sockets_text(num_strands_there_) + " and this process " +
           sockets_text(credentials_.num_strands) +
           ": set ALLHANDS_SOCKETS alike on every host";
  if (strand_ > credentials_.num_strands) return "it wants a socket that there is not";
  const bool is_lacking_there = credentials_.needs_ucx && !offers_ucx_there_;
  const bool is_lacking_here = needs_ucx_there_ && credentials_.ucx.empty();
  if (!is_lacking_there && !is_lacking_here) return {};
  return std::string(is_lacking_there ? "it" : "this process") +
         " does not use UCX and " + (is_lacking_there ? "this process" : "it") +
         " has to: set ALLHANDS_TRANSPORT alike on every host, and install UCX there "
         "(Debian and Ubuntu: libucx0; Fedora: ucx; pip: libucx-cu12)";
}

// Only a process that knows the secret can make this digest.
std::string Handshake::digest_of_hellos(std::string_view purpose) const {
  std::string message(purpose);
  message += is_dialer_ ? mine_ + theirs_ : theirs_ + mine_;
  return std::string(as_view(hmac_sha256(credentials_.secret, message)));
}

std::string Handshake::prove(bool as_dialer) const {
  return digest_of_hellos(as_dialer ? "allhands peers dialer"
                                    : "allhands peers listener");
}

void Handshake::handle_proof() {
  if (!is_equal_constant_time(came_, prove(true)))
    return fail("it does not know the job's secret");
  state_ = State::Asks;
}

Handshake::State Handshake::accept(std::uint64_t number, std::uint64_t received) {
  state_ = State::Going;
  number_ = number;
  received_ = received;
  say_verdict(kAccepted);
  expect(Step::Ready, sizeof(FrameHead));
  return advance();
}

Handshake::State Handshake::refuse(Refusal why) {
  state_ = State::Going;
  say_verdict(static_cast<std::uint32_t>(why));
  if (state_ == State::Going)
    fail(why == Refusal::Busy ? "it has a connection already" : "it was given up");
  return state_;
}

void Handshake::say_verdict(std::uint32_t verdict) {
  std::string text;
  append_little_endian(text, verdict);
  send(text + prove(false));
}

void Handshake::handle_verdict() {
  const auto verdict = read_little_endian<std::uint32_t>(came_.data());
  if (!is_equal_constant_time(std::string_view(came_).substr(4), prove(false)))
    return fail("it does not know the job's secret");
  state_ = verdict == kAccepted                                      ? State::Accepted
           : verdict == static_cast<std::uint32_t>(Refusal::GivenUp) ? State::GivenUp
                                                                     : State::Busy;
}

Handshake::State Handshake::take_up(std::uint64_t received) {
  state_ = State::Going;
  received_ = received;
  say_ready();
  expect(Step::Ready, sizeof(FrameHead));
  return advance();
}

// FrameKind says what the fields of a Ready frame mean.
void Handshake::say_ready() {
  const std::string ucx = has_ucx() ? credentials_.ucx : "";
  const FrameHead ready = {0, FrameKind::Ready, 0, 0, received_, number_, ucx.size()};
  std::string bytes(reinterpret_cast<const char*>(&ready), sizeof(ready));
  send(bytes + ucx);
}

void Handshake::handle_ready() {
  FrameHead head;
  std::memcpy(&head, came_.data(), sizeof(head));
  const bool is_sound = head.kind == FrameKind::Ready && head.length == 0 &&
                        head.number == 0 && head.key <= kMaxUcxAddress &&
                        (head.key != 0) == has_ucx();
  if (!is_sound) return fail("its first frame makes no sense");
  received_there_ = head.popped;
  if (is_dialer_)
    number_ = head.settled;
  else
    say_ready();
  if (state_ != State::Going) return;
  if (head.key != 0) return expect(Step::Ucx, head.key);
  end_plain();
}

// Everything that is not encrypted has come.
void Handshake::end_plain() {
  if (credentials_.is_encrypted)
    begin_tls();
  else
    state_ = State::Done;
}

void Handshake::begin_tls() {
  step_ = Step::Tls;
  try {
    tls_ = std::make_unique<TlsSession>(
        socket_.get(), is_dialer_ ? TlsSession::Role::Server : TlsSession::Role::Client,
        digest_of_hellos("allhands peers tls"));
  } catch (const Error& error) {
    fail(error.what());
  }
}

void Handshake::advance_tls() {
  switch (tls_->shake()) {
    case TlsSession::Progress::Going:
      return;
    case TlsSession::Progress::Done:
      state_ = State::Done;
      return;
    case TlsSession::Progress::Failed:
      return fail(tls_->problem());
  }
}

}  // namespace allhands
