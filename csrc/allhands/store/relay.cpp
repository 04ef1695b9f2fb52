#include "allhands/store/relay.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <exception>
#include <memory>
#include <unordered_map>
#include <utility>

#include "allhands/base/error.hpp"
#include "allhands/net/socket.hpp"
#include "allhands/store/guest.hpp"
#include "allhands/store/message_queue.hpp"
#include "allhands/store/protocol.hpp"

namespace allhands::store {

// Passes on the requests of its clients, each with the client's number, and the
// server's replies to them.
class Relay::Forwarder : public LoopOwner {
 public:
  Forwarder(std::vector<Fd> listeners, const Target& server, Link to_server,
            std::chrono::milliseconds handshake_limit)
      : loop_(std::move(listeners), server.secret, to_server.server_identity(),
              handshake_limit, *this),
        socket_(to_server.take_socket()) {
    loop_.also_serve(socket_.get(),
                     [this](const Readiness& ready) { talk_to_server(ready); });
  }

  ClientLoop& loop() override { return loop_; }

  void handle(int client, Message request) override {
    Client& self = clients_.try_emplace(client).first->second;
    const bool is_cancel = static_cast<Op>(request.code) == Op::Cancel;
    if (is_cancel && !self.is_waiting) return;  // it crossed the answer
    if (!is_cancel && self.is_waiting)
      throw Error(ErrorKind::Network, "a request while another one waits");
    if (self.number == 0) {
      self.number = ++last_number_;
      sockets_.emplace(self.number, client);
    }
    std::vector<Value> fields = as_fields(std::move(request));
    try {
      requests_.push(static_cast<std::uint32_t>(Op::Relayed), self.number, fields);
    } catch (const Error& error) {  // more than one message holds
      return loop_.answer(client, invalid(error.what()));
    }
    self.is_waiting = true;
  }

  void leave(int client) override {
    const auto found = clients_.find(client);
    if (found == clients_.end()) return;
    const std::int64_t number = found->second.number;
    clients_.erase(found);
    if (sockets_.erase(number) != 0)
      requests_.push(static_cast<std::uint32_t>(Op::Left), number, {});
  }

  void settle() override {
    guard([this] { send(); });
  }

 private:
  struct Client {
    std::int64_t number = 0;  // the server's name for it; 0: it has asked for nothing
    bool is_waiting = false;  // for a reply
  };

  // Without the server nothing is left to do.
  template <typename Action>
  void guard(const Action& action) {
    try {
      action();
    } catch (const std::exception&) {
      loop_.stop();
    }
  }

  void talk_to_server(const Readiness& ready) {
    guard([&] {
      if (ready.is_writable) send();
      if (ready.is_readable) receive();
    });
  }

  void send() {
    const bool is_done = requests_.send(socket_.get());
    if (is_done != is_sending_) return;
    is_sending_ = !is_done;
    loop_.watch(socket_.get(), is_sending_);
  }

  void receive() {
    const ssize_t count =
        ::recv(socket_.get(), scratch_.data(), scratch_.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) throw Error(ErrorKind::Network, "the server has gone");
    std::string_view bytes(scratch_.data(), static_cast<std::size_t>(count));
    while (reader_.feed(bytes)) {
      pass_on(std::move(reader_.message()));
      reader_.restart();
      if (bytes.empty()) return;
    }
  }

  void pass_on(Message reply) {
    const auto found = sockets_.find(reply.number);
    if (found == sockets_.end()) return;  // it has gone meanwhile
    const int client = found->second;
    clients_.at(client).is_waiting = false;
    if (static_cast<Status>(reply.code) == Status::Refused)
      return loop_.dismiss(client);
    Reply own = {static_cast<Status>(reply.code), take_number(reply.fields), {}};
    own.fields.reserve(reply.fields.size());
    for (std::string& field : reply.fields)
      own.fields.push_back(std::make_shared<const std::string>(std::move(field)));
    loop_.answer(client, own);
  }

  ClientLoop loop_;
  Fd socket_;
  MessageQueue requests_;
  bool is_sending_ = false;  // whether the loop says when the socket takes more
  MessageReader reader_{/*is_trusted=*/true};
  std::unordered_map<int, Client> clients_;        // by socket
  std::unordered_map<std::int64_t, int> sockets_;  // by number
  std::int64_t last_number_ = 0;
  std::array<char, std::size_t{64} << 10> scratch_;
};

Relay::Relay(std::vector<Fd> listeners, const Target& server, Link to_server,
             std::chrono::milliseconds handshake_limit)
    : port_(local_address(listeners.at(0).get()).port()),
      own_address_(to_server.own_address()),
      thread_(std::make_unique<Forwarder>(std::move(listeners), server,
                                          std::move(to_server), handshake_limit)) {}

}  // namespace allhands::store
