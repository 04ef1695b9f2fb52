#include "allhands/store/connection.hpp"

#include <sys/socket.h>

#include <limits>
#include <utility>

#include "allhands/base/error.hpp"
#include "allhands/net/little_endian.hpp"
#include "allhands/net/sha256.hpp"
#include "allhands/store/guest.hpp"
#include "allhands/store/handshake.hpp"

namespace allhands::store {
std::size_t Connection::appetite() const {
  if (state_ == State::Greeting) return Hello::kBytes - received_.size();
  if (state_ == State::Proving) return kProofBytes - received_.size();
  return std::numeric_limits<std::size_t>::max();
}

void Connection::receive(std::string_view bytes, const OnRequest& on_request) {
  if (state_ == State::Open) {
    while (reader_.feed(bytes)) {
      on_request(std::move(reader_.message()));
      reader_.restart();
      if (bytes.empty()) return;
    }
    return;
  }
  received_.append(bytes);
  if (appetite() > 0) return;
  if (state_ == State::Greeting)
    greet();
  else
    judge();
}

void Connection::greet() {
  Hello hello;
  if (!Hello::decode(received_, hello))
    throw Error(ErrorKind::Network, "not a client of ours");
  client_hello_ = std::exchange(received_, {});
  // A client of another version, or without the secret, tells its user so.
  server_hello_ = Hello::make(secret_, identity_).encode();
  state_ = State::Proving;
  send_small(server_hello_);
}

void Connection::judge() {
  const bool is_known = is_equal_constant_time(
      received_, prove(Side::Client, secret_, client_hello_, server_hello_));
  std::string verdict;
  append_little_endian(verdict, is_known ? kAccepted : std::uint32_t{0});
  verdict += is_known ? prove(Side::Server, secret_, client_hello_, server_hello_)
                      : std::string(kProofBytes, '\0');
  send_small(verdict);
  if (!is_known) throw Error(ErrorKind::Network, "the client does not know the secret");
  state_ = State::Open;
  client_hello_.clear();
  server_hello_.clear();
  received_.clear();
}

// A new socket has room for the handshake. One without room is not worth waiting for.
void Connection::send_small(std::string_view bytes) {
  const ssize_t sent =
      ::send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent != static_cast<ssize_t>(bytes.size()))
    throw Error(ErrorKind::Network, "the client does not read");
  sent_ += bytes.size();
}

void Connection::add_reply(const Reply& reply) {
  try {
    replies_.push(static_cast<std::uint32_t>(reply.status), reply.number, reply.fields);
  } catch (const Error& error) {  // more than one message holds
    add_reply(invalid(error.what()));
  }
}

void Connection::add_reply(std::int64_t guest, Reply reply) {
  try {
    replies_.push(static_cast<std::uint32_t>(reply.status), guest,
                  as_fields(reply.number, std::move(reply.fields)));
  } catch (const Error& error) {
    add_reply(guest, invalid(error.what()));
  }
}

}  // namespace allhands::store
