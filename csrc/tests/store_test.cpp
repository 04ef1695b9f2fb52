// Server and clients over loopback, ranks as threads; also through a relay.
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "allhands/base/error.hpp"
#include "allhands/net/listener.hpp"
#include "allhands/net/socket.hpp"
#include "allhands/store/change_count.hpp"
#include "allhands/store/client.hpp"
#include "allhands/store/handshake.hpp"
#include "allhands/store/relay.hpp"
#include "allhands/store/server.hpp"
#include "check.hpp"

namespace allhands::store {
namespace {

using std::chrono::milliseconds;
using testing::run_ranks;

Deadline soon() { return Deadline::after(std::chrono::seconds(600)); }  // a hang
Deadline in(int count) { return Deadline::after(milliseconds(count)); }

// Whether there is a relay before each server that serve() makes.
bool is_relayed = false;

class Served {
 public:
  Served(const std::string& secret, const std::string& host, std::uint16_t port)
      : server_(std::make_unique<Server>(listen_on(host, port, {soon()}), secret)) {
    if (is_relayed) relay_ = relay(secret);
  }

  std::uint16_t port() const { return relay_ ? relay_->port() : server_->port(); }
  Traffic traffic() const { return server_->traffic(); }
  void end_server() { server_.reset(); }
  // One more relay to the same server.
  std::unique_ptr<Relay> relay(const std::string& secret = "") const {
    const Target target = {"127.0.0.1", server_->port(), secret};
    Link link(target, soon());
    return std::make_unique<Relay>(listen_on("127.0.0.1", 0, {soon()}), target,
                                   std::move(link));
  }

 private:
  std::unique_ptr<Server> server_;
  std::unique_ptr<Relay> relay_;
};

std::unique_ptr<Served> serve(const std::string& secret = "",
                              const std::string& host = "127.0.0.1",
                              std::uint16_t port = 0) {
  return std::make_unique<Served>(secret, host, port);
}

std::unique_ptr<Client> connect(std::uint16_t port, const std::string& secret = "",
                                const std::string& host = "127.0.0.1",
                                Deadline deadline = soon(),
                                Interrupt interrupt = nullptr) {
  return std::make_unique<Client>(Target{host, port, secret, interrupt}, deadline);
}

// The message of the error of this kind that `call` must raise.
template <typename Call>
std::string message_of(ErrorKind kind, const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    if (error.kind() != kind) std::fprintf(stderr, "other kind: %s\n", error.what());
    CHECK(error.kind() == kind);
    return error.what();
  }
  CHECK(!"an error was raised");
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return true;
  std::fprintf(stderr, "'%s' lacks '%s'\n", text.c_str(), part.c_str());
  return false;
}

// Another connection to the same server has ended: nobody is expected there any more.
void a_link_gives_up_once_its_server_is_lost() {
  const Fd refused(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  std::string problem;
  const Address any = resolve("127.0.0.1", 0, {soon()}, problem).front();
  CHECK(::bind(refused.get(), any.data(), any.size()) == 0);  // and does not listen
  const Target target = {"127.0.0.1", local_address(refused.get()).port(), ""};
  for (const bool is_lost_before : {true, false}) {
    std::atomic<bool> is_lost = is_lost_before;
    std::thread another([&] { is_lost = true; });
    const std::string text = message_of(
        ErrorKind::Network, [&] { Link link(target, in(20'000), &is_lost); });
    another.join();
    CHECK(contains(text, "another connection to it ended"));
  }
}

void every_operation() {
  const auto server = serve();
  const auto client = connect(server->port());
  client->set("k", std::string("a\0b", 3), soon());
  CHECK(client->get("k", soon()).value() == std::string("a\0b", 3));
  CHECK(client->add("n", 5, soon()) == 5 && client->add("n", -7, soon()) == -2);
  CHECK(client->get("n", soon()).value() == "-2");
  client->append("log", "a", soon());
  client->append("log", "b", soon());
  CHECK(client->get("log", soon()).value() == "ab");
  CHECK(client->check({"k", "n"}, soon()) && !client->check({"k", "no"}, soon()));
  client->wait({"k", "log"}, soon());
  CHECK(client->compare_set("c", "x", "y", soon()).value() == "x");
  CHECK(client->compare_set("c", "", "y", soon()).value() == "y");
  CHECK(client->compare_set("c", "z", "w", soon()).value() == "y");
  CHECK(client->num_keys(soon()) == 4 && client->list_keys(soon()).size() == 4);
  CHECK(client->delete_key("c", soon()) && !client->delete_key("c", soon()));
  client->multi_set({"m1", "1", "m2", ""}, soon());
  CHECK(client->multi_get({"m2", "m1"}, soon()).fields() ==
        (std::vector<std::string>{"", "1"}));
  client->queue_push("q", "x", soon());
  CHECK(client->queue_len("q", soon()) == 1);
  CHECK(client->queue_pop("q", true, soon()).value() == "x");
  message_of(ErrorKind::QueueEmpty, [&] { client->queue_pop("q", false, soon()); });
  client->barrier("alone", 1, soon());
}

void a_timed_out_call_leaves_the_client_usable() {
  const auto server = serve();
  const auto client = connect(server->port());
  const auto wait = [&](const Deadline& d) { client->wait({"present", "no"}, d); };
  client->set("present", "v", soon());
  for (const int limit : {0, 1, 50}) {
    const std::string text = message_of(ErrorKind::Store, [&] { wait(in(limit)); });
    CHECK(contains(text, "wait timeout after " + std::to_string(limit) +
                             "ms, keys: /present, /no"));
    CHECK(client->get("present", in(0)).value() == "v");
  }
  message_of(ErrorKind::Store, [&] { client->queue_pop("q", true, in(20)); });
  CHECK(contains(message_of(ErrorKind::Store, [&] { client->barrier("b", 2, in(30)); }),
                 "barrier timeout after 30ms, key: b"));
  client->join(soon());
  CHECK(
      contains(message_of(ErrorKind::Store, [&] { client->await_workers(2, in(20)); }),
               "Timed out after 0.02 s waiting for clients. 1/2 clients joined."));
  client->queue_push("q", "kept", soon());  // not for the call that gave up
  CHECK(client->queue_len("q", soon()) == 1);
}

void bad_values_leave_the_client_usable() {
  const auto server = serve();
  const auto client = connect(server->port());
  client->set("text", "no number", soon());
  CHECK(contains(message_of(ErrorKind::Value, [&] { client->add("text", 1, soon()); }),
                 "is not an int64: 'no number'"));
  const std::string long_key(kMaxKeyBytes + 1, 'k');
  message_of(ErrorKind::Value, [&] { client->set(long_key, "v", soon()); });
  message_of(ErrorKind::Value, [&] { client->barrier("b", 0, soon()); });
  CHECK(client->get("text", soon()).value() == "no number");
}

void large_values_pass_both_ways() {
  const auto server = serve();
  const auto client = connect(server->port());
  std::string value(20'000'001, 'x');
  value.back() = 'y';
  client->set("large", value, soon());
  run_ranks(3, [&](int) {
    const auto reader = connect(server->port());
    CHECK(reader->get("large", soon()).value() == value);
  });
  client->append("large", "z", soon());
  CHECK(client->get("large", soon()).value() == value + "z");
}

void many_clients_meet() {
  constexpr int kClients = 32;
  const auto server = serve();
  run_ranks(kClients, [&](int rank) {
    const auto client = connect(server->port());
    for (int round = 0; round < 10; ++round) {
      const std::string key = std::to_string(round);
      client->set(key + "/" + std::to_string(rank), key, soon());
      client->get(key + "/" + std::to_string((rank + 1) % kClients), soon());
      client->add("sum" + key, rank, soon());
      client->barrier("b", kClients, soon());
      CHECK(client->get("sum" + key, soon()).value() ==
            std::to_string(kClients * (kClients - 1) / 2));
    }
  });
}

void threads_share_a_client() {
  const auto server = serve();
  const auto client = connect(server->port());
  run_ranks(4, [&](int) {
    for (int i = 0; i < 200; ++i) client->add("n", 1, soon());
  });
  CHECK(client->get("n", soon()).value() == "800");
  std::thread waiter([&] { CHECK(client->get("late", soon()).value() == "v"); });
  for (int i = 0; i < 100; ++i) client->check({"late"}, in(0));
  client->set("late", "v", soon());
  waiter.join();
}

void server_may_start_later() {
  const std::uint16_t port = serve()->port();
  std::unique_ptr<Served> server;
  std::thread starter([&] {
    std::this_thread::sleep_for(milliseconds(100));
    server = serve("", "127.0.0.1", port);
  });
  const auto client = connect(port);
  client->set("k", "v", soon());
  starter.join();
}

void nobody_listens() {
  const std::uint16_t port = serve()->port();
  const std::string text =
      message_of(ErrorKind::Network, [&] { connect(port, "", "127.0.0.1", in(120)); });
  CHECK(contains(text, "timed out after 120ms while trying to connect to (127.0.0.1, " +
                           std::to_string(port) + ")"));
  CHECK(contains(text, "Connection refused"));
}

void a_lost_server_is_told_at_once() {
  auto server = serve();
  const std::uint16_t port = server->port();
  const auto client = connect(port);
  std::thread stopper([&] {
    std::this_thread::sleep_for(milliseconds(100));
    server->end_server();
  });
  const std::string where = "127.0.0.1:" + std::to_string(port);
  CHECK(contains(message_of(ErrorKind::Network, [&] { client->get("never", soon()); }),
                 where));
  stopper.join();
  CHECK(contains(message_of(ErrorKind::Network, [&] { client->set("k", "v", soon()); }),
                 where));
}

std::atomic<bool> wants_out = false;
bool is_interrupted() { return wants_out; }

void an_interrupt_ends_every_wait() {
  const auto server = serve();
  const auto client = connect(server->port(), "", "127.0.0.1", soon(), &is_interrupted);
  const auto interrupted = [](const auto& call) {
    const auto start = std::chrono::steady_clock::now();
    wants_out = true;
    message_of(ErrorKind::Interrupted, call);
    wants_out = false;
    // Not a matter of `soon`. How soon it is, the tests of the package hold.
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(60));
  };
  interrupted([&] { client->get("never", soon()); });
  interrupted([&] { client->barrier("b", 2, soon()); });
  client->set("k", "v", soon());
  const std::uint16_t unused = serve()->port();
  interrupted([&] { connect(unused, "", "127.0.0.1", soon(), &is_interrupted); });
}

void secrets_must_match() {
  const auto open = serve();
  const auto closed = serve("secret");
  connect(closed->port(), "secret")->set("k", "v", soon());
  const auto refused = [](const auto& call) {
    return message_of(ErrorKind::Network, call);
  };
  CHECK(contains(refused([&] { connect(closed->port(), "other"); }), "another secret"));
  CHECK(
      contains(refused([&] { connect(closed->port()); }), "asks for the job's secret"));
  CHECK(contains(refused([&] { connect(open->port(), "secret"); }), "has no secret"));
}

void a_proof_is_good_for_one_connection_and_one_side() {
  const std::string a = Hello::make("s", "").encode();
  const std::string b = Hello::make("s", "0123456789abcdef").encode();
  const std::string c = Hello::make("s", "0123456789abcdef").encode();
  CHECK(prove(Side::Client, "s", a, b) != prove(Side::Client, "s", a, c));
  CHECK(prove(Side::Client, "s", a, b) != prove(Side::Server, "s", a, b));
  CHECK(prove(Side::Client, "s", a, b) == prove(Side::Client, "s", a, b));
}

void a_stranger_that_takes_too_long_is_dropped() {
  // Long enough for the client here, which is a stranger until it has proved itself.
  const Server server(listen_on("127.0.0.1", 0, {soon()}), "", milliseconds(4000));
  const auto client = connect(server.port());
  std::string problem;
  const std::vector<Address> addresses =
      resolve("127.0.0.1", server.port(), {soon()}, problem);
  const Fd silent = connect_to(addresses.at(0), {soon()}, problem);
  CHECK(wait_ready(silent.get(), Direction::Read, {soon()}));
  char byte;
  CHECK(::recv(silent.get(), &byte, 1, 0) == 0);
  client->set("k", "v", soon());  // no stranger
}

void listens_only_where_asked() {
  const auto server = serve("", "127.0.0.2");
  connect(server->port(), "", "127.0.0.2")->set("k", "v", soon());
  message_of(ErrorKind::Network,
             [&] { connect(server->port(), "", "127.0.0.1", in(50)); });
  const auto text =
      message_of(ErrorKind::Network, [&] { serve("", "127.0.0.2", server->port()); });
  CHECK(contains(text, "EADDRINUSE"));
  CHECK(contains(text, "process " + std::to_string(::getpid())));
  CHECK(contains(message_of(ErrorKind::Network, [] { serve("", "192.0.2.1"); }),
                 "no address of this machine"));
}

void a_name_is_all_its_addresses() {
  const auto server = serve("", "localhost");
  connect(server->port(), "", "127.0.0.1")->set("k", "v", soon());
  connect(server->port(), "", "localhost")->set("k", "v", soon());
}

void a_forked_child_leaves_the_server_alone() {
  auto server = serve();
  const auto client = connect(server->port());
  client->set("k", "parent", soon());
  const pid_t child = ::fork();
  if (child == 0) {
    server.reset();
    ::_exit(client->get("k", soon()).value() == "parent"
                ? 0
                : 1);  // over a connection of its own
  }
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child && status == 0);
  CHECK(client->get("k", soon()).value() == "parent");
}

void a_last_will_is_done_when_its_process_ends() {
  const auto server = serve();
  const auto client = connect(server->port());
  int pipe[2];
  CHECK(::pipe(pipe) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto own = connect(server->port());
    const auto will = own->leave_will("died", "1", soon());
    (void)!::write(pipe[1], "x", 1);
    ::pause();
  }
  ::close(pipe[1]);  // so that the end of the child ends the read
  char ready = 0;
  CHECK(::read(pipe[0], &ready, 1) == 1);
  CHECK(!client->check({"died"}, soon()));
  ::kill(child, SIGKILL);
  client->wait({"died"}, soon());
  CHECK(client->get("died", soon()).value() == "1");
  ::waitpid(child, nullptr, 0);
  ::close(pipe[0]);
}

void a_last_will_that_is_withdrawn_is_not_done() {
  const auto server = serve();
  const auto client = connect(server->port());
  client->set("died", "the one before", soon());
  const auto kept = client->leave_will("died", "1", soon());
  CHECK(!client->check({"died"}, soon()));
  auto withdrawn = client->leave_will("gone", "1", soon());
  const pid_t child = ::fork();
  if (child == 0) {
    withdrawn->withdraw();  // it is the parent's
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  auto dropped = client->leave_will("dropped", "1", soon());
  dropped.reset();
  client->wait({"dropped"}, soon());
  withdrawn->withdraw();
  withdrawn.reset();
  // A connection that was made later is served later.
  CHECK(!connect(server->port())->check({"gone"}, soon()));
  CHECK(!client->check({"died"}, soon()));
}

void a_change_wakes_whoever_waits_for_it() {
  constexpr int kRounds = 1000;
  ChangeCount count, answers;
  run_ranks(2, [&](int rank) {
    ChangeCount& ours = rank == 0 ? count : answers;
    ChangeCount& theirs = rank == 0 ? answers : count;
    for (std::uint32_t i = 0; i < kRounds; ++i) {
      if (rank == 0) ours.increase();
      CHECK(theirs.wait_beyond(i, {soon()}));
      if (rank == 1) ours.increase();
    }
  });
  CHECK(count.now() == kRounds && answers.now() == kRounds);
  CHECK(!count.wait_beyond(kRounds, {in(1)}));
}

void an_adopted_listener_serves() {
  std::vector<Fd> made = listen_on("127.0.0.1", 0, {soon()});
  const std::uint16_t port = local_address(made[0].get()).port();
  const int fd = made[0].release();
  std::vector<Fd> adopted;
  adopted.push_back(adopt_listener(fd, port));
  const Server server(std::move(adopted), "");
  connect(port)->set("k", "v", soon());
  message_of(ErrorKind::Value, [] { adopt_listener(12345, 0); });
}

std::unique_ptr<Client> connect(const Relay& relay) { return connect(relay.port()); }

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
  for (const bool relayed : {false, true}) {
    is_relayed = relayed;
    a_link_gives_up_once_its_server_is_lost();
    every_operation();
    a_timed_out_call_leaves_the_client_usable();
    bad_values_leave_the_client_usable();
    large_values_pass_both_ways();
    many_clients_meet();
    threads_share_a_client();
    a_lost_server_is_told_at_once();
    an_interrupt_ends_every_wait();
    secrets_must_match();
    a_forked_child_leaves_the_server_alone();
    a_last_will_is_done_when_its_process_ends();
    a_last_will_that_is_withdrawn_is_not_done();
  }
  is_relayed = false;
  server_may_start_later();
  nobody_listens();
  a_proof_is_good_for_one_connection_and_one_side();
  a_stranger_that_takes_too_long_is_dropped();
  listens_only_where_asked();
  a_name_is_all_its_addresses();
  a_change_wakes_whoever_waits_for_it();
  an_adopted_listener_serves();
  a_relay_has_one_connection_to_the_server();
  clients_of_relays_meet_others();
  who_leaves_a_relay_waits_no_longer();
  a_relay_that_goes_takes_its_clients_along();
  who_breaks_the_rules_is_dropped_alone();
}
