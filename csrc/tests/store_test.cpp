// Server and clients over loopback, ranks as threads; with and without a relay.
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "allhands/net/socket.hpp"
#include "allhands/store/change_count.hpp"
#include "allhands/store/handshake.hpp"
#include "served.hpp"

namespace allhands::store {
namespace {

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
  client->join(true, soon());
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
}
