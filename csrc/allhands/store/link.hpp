// One connection of a client to a store server: made and proved by the constructor,
// then one request at a time. Whoever gets an exception, or finds it spent, throws it
// away; the server notices and forgets what the connection waited for. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "allhands/base/fd.hpp"
#include "allhands/base/wait.hpp"
#include "allhands/net/address.hpp"
#include "allhands/store/message.hpp"
#include "allhands/store/protocol.hpp"

namespace allhands::store {

// The server that a client talks to.
struct Target {
  std::string host;
  std::uint16_t port = 0;
  std::string secret;
  Interrupt interrupt = nullptr;
  std::string identity = {};  // of the very server, once known; another is refused

  std::string where() const { return endpoint_text(host, port); }
};

// One connection of a client to a store server.
class Link {
 public:
  // Connects; keeps trying until the deadline, since the server may start later.
  // Throws Error(Network), at once where the server is not ours or refuses the secret,
  // and Interrupted. `target` must outlive the link.
  Link(const Target& target, const Deadline& deadline);

  // Sends a request, returns the reply; Status::Cancelled where none came in time. It
  // is the caller's until the next call. Throws Error(Network) where the server is
  // gone, and Interrupted.
  Message& exchange(Op op, std::int64_t number,
                    const std::vector<std::string_view>& fields,
                    const Deadline& deadline);
  // Sends a request whose reply nobody waits for, if it goes at once; good for nothing
  // more.
  void send_last(Op op);
  // The caller is done with the reply.
  void rest() { reader_.restart(); }
  // Given up in the middle of a message; good for nothing more.
  bool is_spent() const { return !socket_.is_open(); }
  const std::string& server_identity() const { return identity_; }
  // This process's address on the way to the server.
  std::string own_address() const;

 private:
  bool dial(const Address& address, const Deadline& deadline, std::string& problem);
  bool shake_hands(const Address& address, const Deadline& deadline,
                   std::string& problem);
  std::string receive_hello(const Address& address, const Deadline& deadline);
  void check_hello(std::string_view bytes);
  bool send_bytes(std::string_view bytes);
  std::string receive_bytes(std::size_t count, const Deadline& deadline);

  bool send(const Deadline& deadline);
  bool receive(const Deadline& deadline, Interrupt interrupt);
  bool cancel();
  [[noreturn]] void lose(const std::string& why);

  const Target& target_;
  std::string identity_;     // of the server
  bool has_closed_ = false;  // the server, before it said hello
  bool is_torch_ruled_out_ = false;
  Fd socket_;
  MessageWriter writer_;
  MessageReader reader_{/*is_trusted=*/true};
  std::vector<char> scratch_;
};

}  // namespace allhands::store
