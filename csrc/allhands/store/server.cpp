#include "allhands/store/server.hpp"

#include <memory>
#include <set>
#include <utility>

#include "allhands/base/error.hpp"
#include "allhands/base/random.hpp"
#include "allhands/net/socket.hpp"
#include "allhands/store/guest.hpp"
#include "allhands/store/guests.hpp"
#include "allhands/store/handshake.hpp"
#include "allhands/store/service.hpp"

namespace allhands::store {

// Passes on what clients and the guests of relays ask for, and the service's answers.
class Server::Reception : public LoopOwner {
 public:
  Reception(std::vector<Fd> listeners, std::string secret,
            std::chrono::milliseconds handshake_limit)
      : loop_(std::move(listeners), std::move(secret),
              random_bytes(Hello::kIdentityBytes), handshake_limit, *this),
        service_([this](ClientId id, Reply reply) { answer(id, std::move(reply)); },
                 [this](ClientId id) { return loop_.is_there(socket_of(id)); }) {}

  ClientLoop& loop() override { return loop_; }

  void handle(int client, Message request) override {
    const auto op = static_cast<Op>(request.code);
    if (op == Op::Relayed)
      handle_guest(client, std::move(request));
    else if (op == Op::Left)
      forget(guests_.enter(client, request.number));
    else
      service_.handle(client, std::move(request));
  }

  void leave(int client) override {
    for (const ClientId guest : guests_.of(client)) forget(guest);
    service_.leave(client);
    answered_relays_.erase(client);
  }

  void settle() override {
    for (const int relay : std::exchange(answered_relays_, {})) loop_.flush(relay);
  }

 private:
  using ClientId = Service::ClientId;

  // Any error with a guest ends that guest, and nothing else.
  void handle_guest(int relay, Message relayed) {
    const std::int64_t number = relayed.number;
    Message request = request_of_guest(std::move(relayed));
    const ClientId guest = guests_.enter(relay, number);
    try {
      service_.handle(guest, std::move(request));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::Network) throw;
      answer(guest, {Status::Refused, 0, {}});
      forget(guest);
    }
  }

  void forget(ClientId guest) {
    service_.leave(guest);
    guests_.leave(guest);
  }

  void answer(ClientId id, Reply reply) {
    if (id >= 0) return loop_.answer(static_cast<int>(id), reply);
    const auto [relay, number] = guests_.at(id);
    loop_.add_answer(relay, number, std::move(reply));
    answered_relays_.insert(relay);
  }

  int socket_of(ClientId id) const {
    return id >= 0 ? static_cast<int>(id) : guests_.at(id).relay;
  }

  ClientLoop loop_;
  Guests guests_;
  std::set<int> answered_relays_;  // that have answers which were not sent
  Service service_;
};

Server::Server(std::vector<Fd> listeners, std::string secret,
               std::chrono::milliseconds handshake_limit)
    : port_(local_address(listeners.at(0).get()).port()),
      thread_(std::make_unique<Reception>(std::move(listeners), std::move(secret),
                                          handshake_limit)) {}

}  // namespace allhands::store
