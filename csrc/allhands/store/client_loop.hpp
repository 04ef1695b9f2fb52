// Serves clients over sockets: a loop that accepts them, lets in those that know the
// secret, and passes on their requests. It never waits for a single client. What
// becomes of a request is up to the Handler.
//
// All members but stop() and traffic() belong to the thread that runs the loop.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "allhands/base/fd.hpp"
#include "allhands/net/poller.hpp"
#include "allhands/net/wakeup.hpp"
#include "allhands/store/connection.hpp"
#include "allhands/store/message.hpp"
#include "allhands/store/service.hpp"

namespace allhands::store {

// How long a stranger may take for the handshake.
inline constexpr std::chrono::milliseconds kHandshakeLimit = std::chrono::seconds(10);

// What a loop has counted since it began.
struct Traffic {
  std::uint64_t connections;
  std::uint64_t requests;
  std::uint64_t bytes_received;  // with handshakes, without what TCP adds
  std::uint64_t bytes_sent;
};

// What becomes of the requests of a loop's clients, which it knows by their sockets.
class Handler {
 public:
  virtual ~Handler() = default;
  // Throws Error(Network) if the loop must drop the client.
  virtual void handle(int client, Message request) = 0;
  // The client has gone. May be called again for the same client.
  virtual void leave(int client) = 0;
  // All that came at one time has been handled.
  virtual void settle() {}
};

// A loop for the clients of a store.
class ClientLoop {
 public:
  // `handler` must outlive the loop. The others see `identity` in the handshake.
  ClientLoop(std::vector<Fd> listeners, std::string secret, std::string identity,
             std::chrono::milliseconds handshake_limit, Handler& handler);

  // Returns after stop(). All clients have been told then that the server is gone.
  void run();
  void stop();              // from any thread
  Traffic traffic() const;  // from any thread

  // These are for clients that have not left. Sends a reply.
  void answer(int client, const Reply& reply);
  // Adds a reply to a guest of this client to those that flush() sends.
  void add_answer(int client, std::int64_t guest, Reply reply);
  void flush(int client);
  // Closes the connection soon; the handler is told.
  void dismiss(int client) { drop(clients_.at(client)); }
  // Whether the client can still take what it has asked for.
  bool is_there(int client) const;
  // Calls `serve` when `fd` is readable, and when it is writable if `watch` says so.
  void also_serve(int fd, std::function<void(const Readiness&)> serve);
  void watch(int fd, bool is_writable) { poller_.watch(fd, true, is_writable); }

 private:
  using Clock = std::chrono::steady_clock;
  using Counter = std::atomic<std::uint64_t>;  // one thread adds, others read

  struct Client {
    Connection connection;
    std::uint64_t serial;  // tells it from a later client with the same fd
    bool is_dropped = false;
  };
  struct Stranger {
    Clock::time_point limit;
    int fd;
    std::uint64_t serial;
  };

  static void add(Counter& counter, std::uint64_t count);
  std::chrono::nanoseconds time_to_next_chore() const;
  void serve(const Readiness& ready);
  template <typename Action>
  void guard(Client& client, const Action& action);
  void read(Client& client);
  template <typename Action>
  void send_to(int fd, const Action& action);
  void accept_clients(int listener);
  void make_room();
  bool welcome(Fd socket);
  void pause_accepting();
  void resume_accepting();
  Client* oldest_stranger();
  void close_slow_strangers();
  void drop(Client& client);
  void close_dropped();

  std::vector<Fd> listeners_;
  const std::chrono::milliseconds handshake_limit_;
  const std::string secret_;
  const std::string identity_;
  Handler& handler_;
  std::atomic<bool> is_stopping_ = false;
  Poller poller_;
  Wakeup wakeup_;
  std::unordered_map<int, std::function<void(const Readiness&)>> others_;
  std::unordered_map<int, Client> clients_;
  std::uint64_t last_serial_ = 0;
  // In order of arrival; some may have proved themselves since.
  std::deque<Stranger> strangers_;
  std::vector<int> dropped_;
  bool is_accepting_ = true;
  Clock::time_point accept_again_;
  Counter connections_ = 0;
  Counter requests_ = 0;
  Counter bytes_received_ = 0;
  Counter bytes_sent_ = 0;
  std::array<char, std::size_t{64} << 10> scratch_;
};

}  // namespace allhands::store
