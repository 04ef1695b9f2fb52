#include "allhands/store/link.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "allhands/base/error.hpp"
#include "allhands/net/little_endian.hpp"
#include "allhands/net/sha256.hpp"
#include "allhands/net/socket.hpp"
#include "allhands/store/handshake.hpp"
#include "allhands/store/torch_store.hpp"

namespace allhands::store {
namespace {

using std::chrono::milliseconds;

// An address that drops packets must not use up the time of the next one.
constexpr Deadline::Duration kDialLimit = std::chrono::seconds(5);
constexpr Deadline::Duration kFirstPause = milliseconds(10);
constexpr Deadline::Duration kLongestPause = milliseconds(250);
// A server that is silent for this long may be of another kind.
constexpr Deadline::Duration kSilence = milliseconds(500);
// How long the answer to Cancel may take: a part of the limit that has passed, within
// bounds. A server that has no CPU takes longer; then the next request waits for that
// answer first.
constexpr int kPatiencePart = 10;
constexpr Deadline::Duration kLeastPatience = milliseconds(50);
constexpr Deadline::Duration kMostPatience = milliseconds(1000);

std::string milliseconds_text(Deadline::Duration duration) {
  return std::to_string(std::chrono::duration_cast<milliseconds>(duration).count()) +
         "ms";
}

// An entry that a queue has handed out is lost if nobody waits for it.
Deadline::Duration patience(Op op, const Deadline& passed) {
  if (op == Op::QueuePop) return kMostPatience;
  return std::clamp(passed.limit() / kPatiencePart, kLeastPatience, kMostPatience);
}

}  // namespace

Link::Link(const Target& target, const Deadline& deadline,
           const std::atomic<bool>* is_lost)
    : target_(target) {
  std::string problem;
  Deadline::Duration pause = kFirstPause;
  do {
    if (is_lost != nullptr && is_lost->load()) lose("another connection to it ended");
    for (const Address& address :
         resolve(target.host, target.port, {deadline, target.interrupt}, problem))
      if (dial(address, deadline, problem)) return;
    wait_until(
        {Deadline::after(std::min(pause, deadline.remaining())), target.interrupt});
    pause = std::min(2 * pause, kLongestPause);
  } while (!deadline.is_expired());
  throw Error(ErrorKind::Network, "The client socket has timed out after " +
                                      milliseconds_text(deadline.limit()) +
                                      " while trying to connect to (" + target.host +
                                      ", " + std::to_string(target.port) +
                                      "): " + problem);
}

bool Link::dial(const Address& address, const Deadline& deadline,
                std::string& problem) {
  const Deadline limit = Deadline::after(std::min(kDialLimit, deadline.remaining()));
  socket_ = connect_to(address, {limit, target_.interrupt}, problem);
  return socket_.is_open() && shake_hands(address, deadline, problem);
}

// Returns false, with the problem, if another attempt may succeed.
bool Link::shake_hands(const Address& address, const Deadline& deadline,
                       std::string& problem) {
  problem = target_.where() + " took the connection, but did not answer";
  const std::string& secret = target_.secret;
  const std::string client_hello = Hello::make(secret, "").encode();
  if (!send_bytes(client_hello)) return false;
  const std::string server_hello = receive_hello(address, deadline);
  if (server_hello.empty()) return false;
  check_hello(server_hello);
  if (!send_bytes(prove(Side::Client, secret, client_hello, server_hello)))
    return false;
  const std::string verdict = receive_bytes(kVerdictBytes, deadline);
  if (verdict.empty()) return false;
  const std::string proof = prove(Side::Server, secret, client_hello, server_hello);
  const bool is_mutual =
      read_little_endian<std::uint32_t>(verdict.data()) == kAccepted &&
      is_equal_constant_time(std::string_view(verdict).substr(4), proof);
  if (!is_mutual)
    throw Error(ErrorKind::Network,
                "the store server at " + target_.where() +
                    " has another secret than this process: set the same "
                    "ALLHANDS_SECRET for every process of the job");
  return true;
}

// Empty if the server closed the connection or did not answer in time.
std::string Link::receive_hello(const Address& address, const Deadline& deadline) {
  const Deadline soon = Deadline::after(std::min(kSilence, deadline.remaining()));
  if (wait_ready(socket_.get(), Direction::Read, {soon, target_.interrupt})) {
    std::string hello = receive_bytes(Hello::kBytes, deadline);
    // A store of ours that is just ending closes, too; only one that closes again is of
    // another kind.
    if (!hello.empty() || !std::exchange(has_closed_, true)) return hello;
  }
  if (!std::exchange(is_torch_ruled_out_, true) &&
      is_torch_store(address, {deadline, target_.interrupt}))
    throw Error(ErrorKind::Network,
                "what listens at " + target_.where() +
                    " is PyTorch's store, such as torchrun hosts, and none of ours. "
                    "Under torchrun, init_process_group() meets there by env://, "
                    "with TORCHELASTIC_USE_AGENT_STORE and MASTER_PORT as torchrun "
                    "set them; elsewhere name another port, the same on every rank, "
                    "and rank 0 hosts a store there");
  return receive_bytes(Hello::kBytes, deadline);
}

void Link::check_hello(std::string_view bytes) {
  const auto refuse = [this](const std::string& why) {
    throw Error(ErrorKind::Network, "the store server at " + target_.where() + why);
  };
  Hello server;
  if (!Hello::decode(bytes, server))
    throw Error(ErrorKind::Network,
                "what listens at " + target_.where() + " is no store server of ours");
  if (server.version != kProtocolVersion)
    refuse(" speaks protocol version " + std::to_string(server.version) +
           ", this process version " + std::to_string(kProtocolVersion) +
           ": install the same release of allhands on every host");
  if (server.has_secret != !target_.secret.empty())
    refuse((server.has_secret ? " asks for the job's secret, and this process has none"
                              : " has no secret, and this process has one") +
           std::string(": set the same ALLHANDS_SECRET for every process of the job"));
  if (!target_.identity.empty() && target_.identity != server.identity)
    refuse(" is not the one this client was connected to; its keys are gone");
  identity_ = server.identity;
}

// Sends a few bytes, for which a new socket always has room unless something is wrong.
bool Link::send_bytes(std::string_view bytes) {
  const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  return sent == static_cast<ssize_t>(bytes.size());
}

// Empty if the server closed the connection or did not answer in time.
std::string Link::receive_bytes(std::size_t count, const Deadline& deadline) {
  std::string bytes;
  while (bytes.size() < count) {
    if (!wait_ready(socket_.get(), Direction::Read, {deadline, target_.interrupt}))
      return {};
    const ssize_t got = ::recv(socket_.get(), scratch_.get(), count - bytes.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) return {};
    bytes.append(scratch_.get(), static_cast<std::size_t>(got));
  }
  return bytes;
}

std::string Link::own_address() const { return local_address(socket_.get()).host(); }

Message& Link::exchange(Op op, std::int64_t number,
                        const std::vector<std::string_view>& fields,
                        const Deadline& deadline) {
  Message& reply = reader_.message();
  if (owes_reply_) {
    if (!receive(deadline, target_.interrupt)) return not_in_time_;
    reader_.restart();
    owes_reply_ = false;
  }
  writer_.start(static_cast<std::uint32_t>(op), number, fields);
  if (send(deadline)) {
    if (receive(deadline, target_.interrupt) || cancel(patience(op, deadline)))
      return reply;
    // What a queue has handed out by then must not get lost; a server that finds the
    // connection closed keeps it.
    owes_reply_ = writer_.is_done() && !reader_.has_begun() && op != Op::QueuePop;
  }
  if (!owes_reply_) socket_.reset();
  return not_in_time_;
}

void Link::send_last(Op op) {
  try {
    writer_.start(static_cast<std::uint32_t>(op), 0, {});
    writer_.send(socket_.get());
  } catch (const Error&) {  // the server is gone, with all that it held
  }
  socket_.reset();
}

// Returns false if the deadline passed first.
bool Link::send(const Deadline& deadline) {
  try {
    while (!writer_.send(socket_.get()))
      if (!wait_ready(socket_.get(), Direction::Write, {deadline, target_.interrupt}))
        return false;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::Network) lose(error.what());
    throw;
  }
  return true;
}

// Returns false if the deadline passed first.
bool Link::receive(const Deadline& deadline, Interrupt interrupt) {
  while (true) {
    if (!wait_ready(socket_.get(), Direction::Read, {deadline, interrupt}))
      return false;
    ssize_t count = 0;
    while ((count = ::recv(socket_.get(), scratch_.get(), kScratch, MSG_DONTWAIT)) >
           0) {
      std::string_view bytes(scratch_.get(), static_cast<std::size_t>(count));
      if (reader_.feed(bytes)) return true;
    }
    if (count == 0) lose("it closed the connection; did its process exit?");
    if (errno != EAGAIN && errno != EINTR) lose(errno_text(errno));
  }
}

// Cancels the request that waits at the server. Returns true when its reply has come.
bool Link::cancel(Deadline::Duration patience) {
  writer_.start(static_cast<std::uint32_t>(Op::Cancel), 0, {});
  return writer_.send(socket_.get()) && receive(Deadline::after(patience), nullptr);
}

void Link::lose(const std::string& why) {
  throw Error(ErrorKind::Network,
              "lost the store server at " + target_.where() + ": " + why);
}

}  // namespace allhands::store
