// One connection of a client to a store server. The constructor connects and shakes
// hands; then the link carries one request at a time. After an exception, or if it is
// spent, the owner must destroy it; the server notices that and forgets what the
// connection waited for. Not thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
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
  std::string identity = {};  // the server's, once known; another server is refused
  std::string name = {};      // in errors, where it is not host and port

  std::string where() const { return name.empty() ? endpoint_text(host, port) : name; }
};

// One connection of a client to a store server.
class Link {
 public:
  // Connects, and keeps trying until the deadline, since the server may start later.
  // Throws Error(Network), at once if the server is of another kind or refuses the
  // secret, soon if `is_lost` becomes true meanwhile, and Interrupted. `target` must
  // outlive the link.
  Link(const Target& target, const Deadline& deadline,
       const std::atomic<bool>* is_lost = nullptr);

  // Sends a request and returns the reply, or Status::Cancelled if none came in time.
  // The reply is valid until the next call. Throws Error(Network) if the server is
  // gone, and Interrupted.
  Message& exchange(Op op, std::int64_t number,
                    const std::vector<std::string_view>& fields,
                    const Deadline& deadline);
  // Sends a request without waiting for a reply, if the socket takes it at once. The
  // link cannot be used afterwards.
  void send_last(Op op);
  // Call when the reply is no longer needed.
  void rest() {
    if (!owes_reply_) reader_.restart();
  }
  // Whether the link was given up in the middle of a message, and cannot be used any
  // more.
  bool is_spent() const { return !socket_.is_open(); }
  const std::string& server_identity() const { return identity_; }
  // The connection after the handshake. The link cannot be used afterwards.
  Fd take_socket() { return std::move(socket_); }
  // This process's address on the way to the server.
  std::string own_address() const;

 private:
  static constexpr std::size_t kScratch = std::size_t{64} << 10;

  bool dial(const Address& address, const Deadline& deadline, std::string& problem);
  bool shake_hands(const Address& address, const Deadline& deadline,
                   std::string& problem);
  std::string receive_hello(const Address& address, const Deadline& deadline);
  void check_hello(std::string_view bytes);
  bool send_bytes(std::string_view bytes);
  std::string receive_bytes(std::size_t count, const Deadline& deadline);

  bool send(const Deadline& deadline);
  bool receive(const Deadline& deadline, Interrupt interrupt);
  bool cancel(Deadline::Duration patience);
  [[noreturn]] void lose(const std::string& why);

  const Target& target_;
  std::string identity_;     // the server's
  bool has_closed_ = false;  // whether the server closed before it said hello
  bool is_torch_ruled_out_ = false;
  Fd socket_;
  bool owes_reply_ = false;  // whether the server still has to reply to an old request
  Message not_in_time_{static_cast<std::uint32_t>(Status::Cancelled), 0, {}};
  MessageWriter writer_;
  MessageReader reader_{/*is_trusted=*/true};
  // Not cleared: most connections only ever touch its first page.
  std::unique_ptr<char[]> scratch_ = std::make_unique_for_overwrite<char[]>(kScratch);
};

}  // namespace allhands::store
