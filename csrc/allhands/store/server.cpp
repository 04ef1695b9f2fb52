#include "allhands/store/server.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <deque>
#include <exception>
#include <unordered_map>
#include <utility>

#include "allhands/base/error.hpp"
#include "allhands/base/random.hpp"
#include "allhands/base/start_thread.hpp"
#include "allhands/net/poller.hpp"
#include "allhands/net/socket.hpp"
#include "allhands/net/wakeup.hpp"
#include "allhands/store/connection.hpp"
#include "allhands/store/handshake.hpp"
#include "allhands/store/service.hpp"

namespace allhands::store {
namespace {

using Clock = std::chrono::steady_clock;

// How long the server accepts no new clients, instead of spinning, if it has no
// descriptors or memory left and every client has proved itself.
constexpr auto kAcceptPause = std::chrono::milliseconds(50);
// The most reads of one client, or accepts, in a row.
constexpr int kMaxTurns = 16;

}  // namespace

class Server::Loop {
 public:
  Loop(std::vector<Fd> listeners, std::string secret,
       std::chrono::milliseconds handshake_limit)
      : listeners_(std::move(listeners)),
        handshake_limit_(handshake_limit),
        secret_(std::move(secret)),
        identity_(random_bytes(Hello::kIdentityBytes)),
        service_([this](int fd, Reply reply) { answer(fd, std::move(reply)); },
                 [this](int fd) { return is_there(fd); }) {
    poller_.add(wakeup_.fd());
    for (const Fd& listener : listeners_) poller_.add(listener.get());
  }

  void run() {
    while (!is_stopping_.load(std::memory_order_relaxed)) {
      for (const Readiness& ready : poller_.wait(time_to_next_chore())) serve(ready);
      close_dropped();
      close_slow_strangers();
      resume_accepting();
    }
    for (const auto& [fd, client] : clients_) ::shutdown(fd, SHUT_RDWR);
    for (const Fd& listener : listeners_) ::shutdown(listener.get(), SHUT_RDWR);
  }

  Traffic traffic() const {  // from any thread
    const auto now = [](const Counter& counter) {
      return counter.load(std::memory_order_relaxed);
    };
    return {now(connections_), now(requests_), now(bytes_received_), now(bytes_sent_)};
  }

  void stop() {  // from any thread
    is_stopping_.store(true, std::memory_order_relaxed);
    wakeup_.notify();
  }

 private:
  using Counter = std::atomic<std::uint64_t>;  // one thread adds, others read

  static void add(Counter& counter, std::uint64_t count) {
    const auto before = counter.load(std::memory_order_relaxed);
    counter.store(before + count, std::memory_order_relaxed);
  }

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

  std::chrono::nanoseconds time_to_next_chore() const {
    Clock::time_point next = Clock::time_point::max();
    if (!strangers_.empty()) next = strangers_.front().limit;
    if (!is_accepting_) next = std::min(next, accept_again_);
    if (next == Clock::time_point::max()) return std::chrono::nanoseconds::max();
    return std::max(std::chrono::nanoseconds(0),
                    std::chrono::nanoseconds(next - Clock::now()));
  }

  void serve(const Readiness& ready) {
    if (ready.fd == wakeup_.fd()) return;
    const auto found = clients_.find(ready.fd);
    if (found == clients_.end()) return accept_clients(ready.fd);
    Client& client = found->second;
    guard(client, [&] {
      if (ready.is_writable && client.connection.flush())
        poller_.watch(ready.fd, true, false);
      add(bytes_sent_, client.connection.take_sent());
      if (ready.is_readable) read(client);
    });
  }

  // Any error with a client ends that client, and nothing else.
  template <typename Action>
  void guard(Client& client, const Action& action) {
    if (client.is_dropped) return;
    try {
      action();
    } catch (const std::exception&) {
      drop(client);
      service_.leave(client.connection.fd());
    }
  }

  void read(Client& client) {
    Connection& connection = client.connection;
    const auto on_request = [&](Message request) {
      const bool is_cancel = request.code == static_cast<std::uint32_t>(Op::Cancel);
      if (!is_cancel && !connection.is_flushed())
        throw Error(ErrorKind::Network, "a request before the last reply was read");
      add(requests_, 1);
      service_.handle(connection.fd(), std::move(request));
    };
    for (int turn = 0; turn < kMaxTurns && !client.is_dropped; ++turn) {
      const std::size_t wanted = std::min(scratch_.size(), connection.appetite());
      const ssize_t count =
          ::recv(connection.fd(), scratch_.data(), wanted, MSG_DONTWAIT);
      if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (count <= 0) throw Error(ErrorKind::Network, "the client has gone");
      const auto num_bytes = static_cast<std::size_t>(count);
      add(bytes_received_, num_bytes);
      connection.receive({scratch_.data(), num_bytes}, on_request);
      add(bytes_sent_, connection.take_sent());
      if (num_bytes < wanted) return;
    }
  }

  void answer(int fd, Reply reply) {
    Client& client = clients_.at(fd);
    if (client.is_dropped) return;
    try {
      if (!client.connection.reply(std::move(reply))) poller_.watch(fd, true, true);
      add(bytes_sent_, client.connection.take_sent());
    } catch (const std::exception&) {
      drop(client);  // the service is busy here; close_dropped() tells it
    }
  }

  bool is_there(int fd) const {
    return !clients_.at(fd).is_dropped && is_connected(fd);
  }

  void accept_clients(int listener) {
    for (int turn = 0; turn < kMaxTurns && is_accepting_; ++turn) {
      Fd socket = accept_from(listener);
      if (!socket.is_open() && (errno == EAGAIN || errno == EINTR)) return;
      const bool is_in = socket.is_open() && welcome(std::move(socket));
      if (is_in) continue;
      // Without a free descriptor, accept fails even if there is nobody left to accept.
      // The poller says whether somebody is.
      if (turn == 0) make_room();
      return;
    }
  }

  // Called when nothing is left for another client: drops the stranger that has been
  // silent for longest. So newcomers get in even if many strangers are silent on
  // purpose.
  void make_room() {
    if (Client* const stranger = oldest_stranger())
      drop(*stranger);  // closed before the next round, which accepts
    else
      pause_accepting();
  }

  // Returns false if the kernel or the allocator has nothing left for a client.
  bool welcome(Fd socket) {
    const int fd = socket.get();
    try {
      tune(fd);
      poller_.add(fd);
      clients_.emplace(fd, Client{Connection(std::move(socket), secret_, identity_),
                                  ++last_serial_});
      strangers_.push_back({Clock::now() + handshake_limit_, fd, last_serial_});
      add(connections_, 1);
    } catch (const std::exception&) {
      return false;
    }
    return true;
  }

  void pause_accepting() {
    for (const Fd& listener : listeners_) poller_.remove(listener.get());
    is_accepting_ = false;
    accept_again_ = Clock::now() + kAcceptPause;
  }

  void resume_accepting() {
    if (is_accepting_ || Clock::now() < accept_again_) return;
    for (const Fd& listener : listeners_) poller_.add(listener.get());
    is_accepting_ = true;
  }

  // The one at the front of strangers_, after removing stale entries; null if there is
  // none.
  Client* oldest_stranger() {
    for (; !strangers_.empty(); strangers_.pop_front()) {
      const Stranger& first = strangers_.front();
      const auto found = clients_.find(first.fd);
      if (found == clients_.end() || found->second.serial != first.serial) continue;
      Client& client = found->second;
      if (!client.is_dropped && client.connection.is_stranger()) return &client;
    }
    return nullptr;
  }

  void close_slow_strangers() {
    while (Client* const stranger = oldest_stranger()) {
      if (Clock::now() < strangers_.front().limit) break;
      drop(*stranger);
    }
    close_dropped();
  }

  void drop(Client& client) {
    if (client.is_dropped) return;
    client.is_dropped = true;
    dropped_.push_back(client.connection.fd());
  }

  // Called after the events of one wait, so that none of them meets a reused
  // descriptor.
  void close_dropped() {
    for (std::size_t i = 0; i < dropped_.size(); ++i) {  // the list may grow meanwhile
      const int fd = dropped_[i];
      service_.leave(fd);
      // The explicit shutdown is needed as a forked child may hold a copy of the
      // socket; then closing it alone would not tell the peer.
      poller_.remove(fd);
      ::shutdown(fd, SHUT_RDWR);
      clients_.erase(fd);
    }
    dropped_.clear();
  }

  std::vector<Fd> listeners_;
  const std::chrono::milliseconds handshake_limit_;
  const std::string secret_;
  const std::string identity_;
  std::atomic<bool> is_stopping_ = false;
  Poller poller_;
  Wakeup wakeup_;
  Service service_;
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

Server::Server(std::vector<Fd> listeners, std::string secret,
               std::chrono::milliseconds handshake_limit)
    : port_(local_address(listeners.at(0).get()).port()),
      owner_(::getpid()),
      loop_(std::make_unique<Loop>(std::move(listeners), std::move(secret),
                                   handshake_limit)) {
  thread_ = std::make_unique<std::thread>(
      start_quiet_thread([loop = loop_.get()] { loop->run(); }));
}

Traffic Server::traffic() const { return loop_->traffic(); }

Server::~Server() {
  if (::getpid() != owner_) {
    // A forked child has no such thread, and its copy of the memory may be in
    // mid-change; so both are leaked.
    (void)loop_.release();
    (void)thread_.release();
    return;
  }
  loop_->stop();
  thread_->join();
}

}  // namespace allhands::store
