// One client, as the server sees it: a stranger until the handshake is done, then a
// sender of requests. Never blocks. Belongs to the server's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "allhands/base/fd.hpp"
#include "allhands/store/message.hpp"
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
  // How many bytes it may send now: a stranger no more than the handshake's.
  std::size_t appetite() const;
  // Bytes that came, no more than the appetite. Throws Error(Network) to be dropped.
  void receive(std::string_view bytes, const OnRequest& on_request);
  // Starts a reply; true when it is sent, else flush() goes on.
  bool reply(Reply reply);
  bool flush();
  bool is_flushed() const { return writer_.is_done(); }
  // How many bytes it has sent since this was asked last.
  std::size_t take_sent() { return std::exchange(sent_, 0) + writer_.take_sent(); }

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
  MessageWriter writer_;
  std::size_t sent_ = 0;        // of the handshake
  std::vector<Value> sending_;  // what the writer points into
};

}  // namespace allhands::store
