#include "allhands/store/client_loop.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <utility>

#include "allhands/base/error.hpp"
#include "allhands/net/socket.hpp"
#include "allhands/store/protocol.hpp"

namespace allhands::store {
namespace {

// How long the server accepts no new clients, instead of spinning, if it has no
// descriptors or memory left and every client has proved itself.
constexpr auto kAcceptPause = std::chrono::milliseconds(50);
// The most reads of one client, or accepts, in a row.
constexpr int kMaxTurns = 16;

// What a client of its own sends while it waits for a reply, or what a relay sends for
// its guests, at any time.
bool needs_no_reply_before(Op op) {
  return op == Op::Cancel || op == Op::Relayed || op == Op::Left;
}

}  // namespace

ClientLoop::ClientLoop(std::vector<Fd> listeners, std::string secret,
                       std::string identity, std::chrono::milliseconds handshake_limit,
                       Handler& handler)
    : listeners_(std::move(listeners)),
      handshake_limit_(handshake_limit),
      secret_(std::move(secret)),
      identity_(std::move(identity)),
      handler_(handler) {
  poller_.add(wakeup_.fd());
  for (const Fd& listener : listeners_) poller_.add(listener.get());
}

void ClientLoop::run() {
  while (!is_stopping_.load(std::memory_order_relaxed)) {
    for (const Readiness& ready : poller_.wait(time_to_next_chore())) serve(ready);
    close_slow_strangers();
    resume_accepting();
    do {
      close_dropped();
      handler_.settle();
    } while (!dropped_.empty());
  }
  for (const auto& [fd, client] : clients_) ::shutdown(fd, SHUT_RDWR);
  for (const Fd& listener : listeners_) ::shutdown(listener.get(), SHUT_RDWR);
}

Traffic ClientLoop::traffic() const {
  const auto now = [](const Counter& counter) {
    return counter.load(std::memory_order_relaxed);
  };
  return {now(connections_), now(requests_), now(bytes_received_), now(bytes_sent_)};
}

void ClientLoop::stop() {
  is_stopping_.store(true, std::memory_order_relaxed);
  wakeup_.notify();
}

void ClientLoop::add(Counter& counter, std::uint64_t count) {
  const auto before = counter.load(std::memory_order_relaxed);
  counter.store(before + count, std::memory_order_relaxed);
}

std::chrono::nanoseconds ClientLoop::time_to_next_chore() const {
  Clock::time_point next = Clock::time_point::max();
  if (!strangers_.empty()) next = strangers_.front().limit;
  if (!is_accepting_) next = std::min(next, accept_again_);
  if (next == Clock::time_point::max()) return std::chrono::nanoseconds::max();
  return std::max(std::chrono::nanoseconds(0),
                  std::chrono::nanoseconds(next - Clock::now()));
}

void ClientLoop::serve(const Readiness& ready) {
  if (ready.fd == wakeup_.fd()) return;
  const auto found = clients_.find(ready.fd);
  if (found == clients_.end()) {
    const auto other = others_.find(ready.fd);
    return other != others_.end() ? other->second(ready) : accept_clients(ready.fd);
  }
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
void ClientLoop::guard(Client& client, const Action& action) {
  if (client.is_dropped) return;
  try {
    action();
  } catch (const std::exception&) {
    drop(client);
    handler_.leave(client.connection.fd());
  }
}

void ClientLoop::read(Client& client) {
  Connection& connection = client.connection;
  const auto on_request = [&](Message request) {
    if (!needs_no_reply_before(static_cast<Op>(request.code)) &&
        !connection.is_flushed())
      throw Error(ErrorKind::Network, "a request before the last reply was read");
    add(requests_, 1);
    handler_.handle(connection.fd(), std::move(request));
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

template <typename Action>
void ClientLoop::send_to(int fd, const Action& action) {
  Client& client = clients_.at(fd);
  if (client.is_dropped) return;
  try {
    action(client.connection);
    add(bytes_sent_, client.connection.take_sent());
  } catch (const std::exception&) {
    drop(client);  // the handler is busy here; close_dropped() tells it
  }
}

void ClientLoop::answer(int client, const Reply& reply) {
  send_to(client, [&](Connection& connection) {
    connection.add_reply(reply);
    if (!connection.flush()) poller_.watch(client, true, true);
  });
}

void ClientLoop::add_answer(int client, std::int64_t guest, Reply reply) {
  send_to(client, [&](Connection& connection) {
    connection.add_reply(guest, std::move(reply));
  });
}

void ClientLoop::flush(int client) {
  send_to(client, [&](Connection& connection) {
    if (!connection.flush()) poller_.watch(client, true, true);
  });
}

void ClientLoop::also_serve(int fd, std::function<void(const Readiness&)> serve) {
  others_.emplace(fd, std::move(serve));
  poller_.add(fd);
}

bool ClientLoop::is_there(int fd) const {
  return !clients_.at(fd).is_dropped && is_connected(fd);
}

void ClientLoop::accept_clients(int listener) {
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
void ClientLoop::make_room() {
  if (Client* const stranger = oldest_stranger())
    drop(*stranger);  // closed before the next round, which accepts
  else
    pause_accepting();
}

// Returns false if the kernel or the allocator has nothing left for a client.
bool ClientLoop::welcome(Fd socket) {
  const int fd = socket.get();
  try {
    tune(fd);
    poller_.add(fd);
    clients_.emplace(
        fd, Client{Connection(std::move(socket), secret_, identity_), ++last_serial_});
    strangers_.push_back({Clock::now() + handshake_limit_, fd, last_serial_});
    add(connections_, 1);
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

void ClientLoop::pause_accepting() {
  for (const Fd& listener : listeners_) poller_.remove(listener.get());
  is_accepting_ = false;
  accept_again_ = Clock::now() + kAcceptPause;
}

void ClientLoop::resume_accepting() {
  if (is_accepting_ || Clock::now() < accept_again_) return;
  for (const Fd& listener : listeners_) poller_.add(listener.get());
  is_accepting_ = true;
}

// The one at the front of strangers_, after removing stale entries; null if there is
// none.
ClientLoop::Client* ClientLoop::oldest_stranger() {
  for (; !strangers_.empty(); strangers_.pop_front()) {
    const Stranger& first = strangers_.front();
    const auto found = clients_.find(first.fd);
    if (found == clients_.end() || found->second.serial != first.serial) continue;
    Client& client = found->second;
    if (!client.is_dropped && client.connection.is_stranger()) return &client;
  }
  return nullptr;
}

void ClientLoop::close_slow_strangers() {
  while (Client* const stranger = oldest_stranger()) {
    if (Clock::now() < strangers_.front().limit) break;
    drop(*stranger);
  }
}

void ClientLoop::drop(Client& client) {
  if (client.is_dropped) return;
  client.is_dropped = true;
  dropped_.push_back(client.connection.fd());
}

// Called after the events of one wait, so that none of them meets a reused
// descriptor.
void ClientLoop::close_dropped() {
  for (std::size_t i = 0; i < dropped_.size(); ++i) {  // the list may grow meanwhile
    const int fd = dropped_[i];
    handler_.leave(fd);
    // The explicit shutdown is needed as a forked child may hold a copy of the
    // socket; then closing it alone would not tell the peer.
    poller_.remove(fd);
    ::shutdown(fd, SHUT_RDWR);
    clients_.erase(fd);
  }
  dropped_.clear();
}

}  // namespace allhands::store
