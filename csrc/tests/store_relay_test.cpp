// What only a relay does: many clients by one connection to the server.
#include <memory>
#include <string>
#include <thread>

#include "served.hpp"

namespace allhands::store {
namespace {

void a_relay_has_one_connection_to_the_server() {
  const auto server = serve();
  const auto relay = server->relay();
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 20; ++i) clients.push_back(connect(*relay));
  for (const auto& client : clients) client->add("n", 1, soon());
  CHECK(clients[0]->get("n", soon()).value() == "20");
  CHECK(server->traffic().connections == 1);
  CHECK(server->traffic().requests == 21 && relay->traffic().requests == 21);
  CHECK(relay->traffic().connections == 20);
}

// Of one relay, of another, and of none.
void clients_of_relays_meet_others() {
  constexpr int kEach = 8;
  const auto server = serve();
  const auto first = server->relay(), second = server->relay();
  run_ranks(3 * kEach, [&](int rank) {
    const std::uint16_t ports[] = {first->port(), second->port(), server->port()};
    const auto client = connect(ports[rank % 3]);
    for (int round = 0; round < 20; ++round) {
      const std::string key = std::to_string(round) + "/";
      client->set(key + std::to_string(rank), std::to_string(rank), soon());
      const std::string next = std::to_string((rank + 1) % (3 * kEach));
      CHECK(client->get(key + next, soon()).value() == next);
      client->barrier("b", 3 * kEach, soon());
    }
  });
}

void who_leaves_a_relay_waits_no_longer() {
  const auto server = serve();
  const auto relay = server->relay();
  const auto stays = connect(*relay);
  for (int i = 0; i < 3; ++i) {
    const auto leaves =
        connect(relay->port(), "", "127.0.0.1", soon(), &is_interrupted);
    wants_out = true;
    // It is dropped without a word to the server, as if its process had ended.
    message_of(ErrorKind::Interrupted, [&] { leaves->queue_pop("q", true, soon()); });
    wants_out = false;
  }
  // They went before this was sent, and nobody takes what is for it.
  stays->queue_push("q", "x", soon());
  CHECK(stays->queue_pop("q", true, soon()).value() == "x");
}

void a_relay_that_goes_takes_its_clients_along() {
  const auto server = serve();
  auto relay = server->relay();
  const auto direct = connect(server->port()), guest = connect(*relay);
  const auto will = guest->leave_will("died", "1", soon());
  guest->set("is_there", "", soon());
  // Begun after the answer, which the relay that goes would lose.
  std::thread stopper([&] { relay.reset(); });
  message_of(ErrorKind::Network, [&] { guest->get("never", soon()); });
  stopper.join();
  CHECK(direct->get("died", soon()).value() == "1");
}

// What no client of ours sends ends its sender, not the others of the host.
void who_breaks_the_rules_is_dropped_alone() {
  const auto server = serve();
  const auto relay = server->relay();
  const auto good = connect(*relay);
  const Target target = {"127.0.0.1", relay->port(), ""};
  for (const Op op : {Op::Relayed, Op::Left, static_cast<Op>(99)}) {
    Link bad(target, soon());
    message_of(ErrorKind::Network, [&] { bad.exchange(op, 5, {"x"}, soon()); });
    good->set("k", "v", soon());
  }
  // A relay itself, however, must know the rules.
  const Target direct = {"127.0.0.1", server->port(), ""};
  Link no_relay(direct, soon());
  message_of(ErrorKind::Network,
             [&] { no_relay.exchange(Op::Relayed, 5, {"no head"}, soon()); });
  good->set("k", "v", soon());
}

}  // namespace
}  // namespace allhands::store

int main() {
  using namespace allhands::store;
  a_relay_has_one_connection_to_the_server();
  clients_of_relays_meet_others();
  who_leaves_a_relay_waits_no_longer();
  a_relay_that_goes_takes_its_clients_along();
  who_breaks_the_rules_is_dropped_alone();
}
