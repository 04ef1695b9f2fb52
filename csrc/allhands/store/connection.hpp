// One client, as the server sees it: a stranger until the handshake is done, then a
// sender of requests. Never blocks. Belongs to the server's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "allhands/base/fd.hpp"
#include "allhands/store/message.hpp"
#include "allhands/store/message_queue.hpp"
#include "allhands/store/service.hpp"

namespace allhands::store {

class Connection {
 public:
  using OnRequest = std::function<void(Message)>;

  // `secret` and `identity` must outlive it.
  Connection(Fd socket, const std::string& secret, const std::string& identity)
      : socket_(std::move(socket)), secret_(secret), identity_(identity) {}

  int fd() const { return socket_.get(); }
  bool is_stranger() const { return state_ != State::Open; }
  // How many bytes the client may send now: a stranger only those of the handshake.
  std::size_t appetite() const;
  // Handles bytes that came, at most as many as appetite(). Throws Error(Network) if
  // the client must be dropped.
  void receive(std::string_view bytes, const OnRequest& on_request);
  // Adds a reply to those that flush() sends, for the client itself or for its guest of
  // this number.
  void add_reply(const Reply& reply);
  void add_reply(std::int64_t guest, Reply reply);
  // Sends what the socket takes. Returns true if nothing is left.
  bool flush() { return replies_.send(fd()); }
  bool is_flushed() const { return replies_.is_empty(); }
  // The number of bytes sent since the last call.
  std::size_t take_sent() { return std::exchange(sent_, 0) + replies_.take_sent(); }

 private:
  enum class State { Greeting, Proving, Open };

  void greet();
  void judge();
  void send_small(std::string_view bytes);

  Fd socket_;
  const std::string& secret_;
  const std::string& identity_;
  State state_ = State::Greeting;
  std::string received_;  // of the handshake's next part
  std::string client_hello_;
  std::string server_hello_;
  MessageReader reader_{/*is_trusted=*/false};
  MessageQueue replies_;
  std::size_t sent_ = 0;  // of the handshake
};

}  // namespace allhands::store
