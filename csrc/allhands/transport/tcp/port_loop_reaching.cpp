// The part of a PortLoop that makes connections, and replaces broken sockets.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "allhands/base/error.hpp"
#include "allhands/base/seconds.hpp"
#include "allhands/net/socket.hpp"
#include "allhands/transport/tcp/port_loop.hpp"

namespace allhands {
namespace {

constexpr const char* kNonsense = "what came from it is no frame";

}  // namespace

// --- dialling ---

PortLoop::Reaching& PortLoop::reaching(const std::shared_ptr<Connection>& connection) {
  Reaching& found = reaching_[connection.get()];
  found.connection = connection;
  return found;
}

void PortLoop::end_reaching(Connection& connection) {
  const auto found = reaching_.find(&connection);
  if (found == reaching_.end()) return;
  drop_attempt(found->second);
  drop_answering(found->second);
  reaching_.erase(found);
}

// The peer was silent for so long that it may be gone, or its socket may be broken.
void PortLoop::suspect(const std::shared_ptr<Connection>& connection) {
  Reaching& doubted = reaching(connection);
  if (!doubted.dial)
    doubted.dial.emplace(connection->peer(),
                         (most_beats_ - suspicious_beats_) * beat_every_, rail_);
}

void PortLoop::dial_due() {
  const auto now = Clock::now();
  std::vector<std::shared_ptr<Connection>> lost;
  for (auto& [key, each] : reaching_) {
    if (!each.dial || each.answering >= 0) continue;
    const auto connecting = connecting_.find(each.dialing);
    if (connecting != connecting_.end() && now >= each.dial->attempt_end())
      fail_dial(each, "it does not answer", false);
    if (each.dialing < 0 && each.dial->is_over())
      lost.push_back(each.connection);
    else if (each.dialing < 0 && now >= each.dial->next())
      begin_dial(each);
  }
  for (const auto& connection : lost) {
    const Reaching& wanted = reaching_.at(connection.get());
    const std::string problem = wanted.dial->problem();
    if (wanted.was_stopped) {
      take_own_end(connection, "it was stopped for " + seconds(stopped_for_) +
                                   ", where a host may be silent for " +
                                   seconds(silence_));
      continue;
    }
    if (connection->state() == Connection::State::Up) {
      lose(connection->fd(), silence_text() + "; " + problem);
      continue;
    }
    drop(connection, problem);
  }
}

void PortLoop::begin_dial(Reaching& reaching) {
  UnforkedFd socket(reaching.dial->begin());
  if (!socket.is_open()) return;
  const int fd = socket.get();
  try {
    poller_.add(fd);
    poller_.watch(fd, false, true);
  } catch (const Error& error) {
    return reaching.dial->fail(error.what(), false);
  }
  reaching.dialing = fd;
  connecting_.emplace(fd, Connecting{std::move(socket), reaching.connection});
}

void PortLoop::on_connected(int fd) {
  const int code = connection_error(fd);
  Connecting connecting = std::move(connecting_.at(fd));
  Reaching& wanted = reaching(connecting.connection);
  if (code != 0) return fail_dial(wanted, errno_text(code), code == ECONNREFUSED);
  connecting_.erase(fd);
  poller_.watch(fd, true, false);
  tune(fd);
  // The host answers after a silence. What is on its way over the old socket may never
  // come.
  if (connecting.connection->state() == Connection::State::Up)
    break_off(connecting.connection->fd(), silence_text());
  // This process closes its port.
  if (connecting.connection->state() == Connection::State::Lost) return;
  Handshake handshake = Handshake::dial(std::move(connecting.socket), credentials_,
                                        self_, connecting.connection->peer(),
                                        connecting.connection->num_sockets());
  shaking_.emplace(
      fd, Shaking{std::move(handshake), handshake_end(wanted), connecting.connection});
  shake(fd);
}

// `problem` is a copy, as the original may belong to the attempt that is dropped here.
void PortLoop::fail_dial(Reaching& reaching, std::string problem, bool is_gone) {
  drop_attempt(reaching);
  reaching.dial->fail(problem, is_gone);
}

void PortLoop::drop_attempt(Reaching& reaching) {
  const int fd = std::exchange(reaching.dialing, -1);
  if (fd < 0) return;
  poller_.remove(fd);
  connecting_.erase(fd);
  shaking_.erase(fd);
}

void PortLoop::drop_answering(Reaching& reaching) {
  const int fd = std::exchange(reaching.answering, -1);
  if (fd < 0) return;
  poller_.remove(fd);
  shaking_.erase(fd);
}

// A broken connection gets no more time than a silent peer.
PortLoop::Clock::time_point PortLoop::handshake_end(const Reaching& reaching) const {
  const auto end = Clock::now() + Handshake::kLimit;
  const bool is_broken = reaching.connection->state() == Connection::State::Broken;
  return is_broken && reaching.dial ? std::min(end, reaching.dial->end()) : end;
}

// --- handshakes ---

void PortLoop::shake(int fd) {
  Shaking& shaking = shaking_.at(fd);
  Handshake& handshake = shaking.handshake;
  handshake.advance();
  if (handshake.state() == Handshake::State::Asks) admit(fd, shaking);
  if (handshake.state() == Handshake::State::Accepted) {
    const std::optional<std::uint64_t> received = shaking.connection->end_socket();
    if (!received) return drop(shaking.connection, kNonsense);
    handshake.take_up(*received);
  }
  switch (handshake.state()) {
    case Handshake::State::Going:
    case Handshake::State::Asks:
    case Handshake::State::Accepted:
      return;
    case Handshake::State::Done:
      return open(shaking);
    case Handshake::State::Busy: {
      Reaching& wanted = reaching(shaking.connection);
      drop_attempt(wanted);
      return wanted.dial->give_way();
    }
    case Handshake::State::GivenUp:
      return take_own_end(shaking.connection, "nothing came from it for too long");
    case Handshake::State::Unwanted:
      return fail_dial(reaching(shaking.connection), handshake.problem(), true);
    case Handshake::State::Failed:
      return end_shaking(fd, handshake.problem());
  }
}

// `connection` is a copy, as the original may belong to what is dropped here.
void PortLoop::drop(std::shared_ptr<Connection> connection, const std::string& reason) {
  end_reaching(*connection);
  connection->lose(reason);
}

void PortLoop::take_own_end(std::shared_ptr<Connection> connection,
                            const std::string& why) {
  end_reaching(*connection);
  connection->take_own_end(why);
}

void PortLoop::admit(int fd, Shaking& shaking) {
  const std::shared_ptr<Connection> from = connection(shaking.handshake.peer());
  if (from->state() == Connection::State::Lost) {
    shaking.handshake.refuse(Handshake::Refusal::GivenUp);
    return;
  }
  if (!is_acceptable(*from, shaking.handshake.number())) {
    shaking.handshake.refuse(Handshake::Refusal::Busy);
    return;
  }
  if (from->state() == Connection::State::Up)
    break_off(from->fd(), "its process has dialled again");
  if (from->state() == Connection::State::Lost) {  // this process is closing its port
    shaking.handshake.refuse(Handshake::Refusal::GivenUp);
    return;
  }
  Reaching& wanted = reaching(from);
  drop_attempt(wanted);
  drop_answering(wanted);  // the dialer has given up that attempt
  const std::optional<std::uint64_t> received = from->end_socket();
  if (!received) {
    shaking.handshake.refuse(Handshake::Refusal::GivenUp);
    return drop(from, kNonsense);
  }
  wanted.answering = fd;
  shaking.connection = from;
  shaking.end = std::min(shaking.end, handshake_end(wanted));
  const std::uint64_t number =
      std::max(shaking.handshake.number(), from->num_sockets()) + 1;
  shaking.handshake.accept(number, *received);
}

// If two processes dial each other, the attempt of the one with the smaller name counts
// once it has connected. An attempt is too late if its dialer has had a newer socket
// since.
bool PortLoop::is_acceptable(Connection& from, std::uint64_t num_sockets) const {
  if (num_sockets < from.num_known_there()) return false;
  const auto found = reaching_.find(&from);
  const int dialing = found == reaching_.end() ? -1 : found->second.dialing;
  return dialing < 0 || connecting_.contains(dialing) || from.peer() < self_;
}

void PortLoop::end_shaking(int fd, std::string problem) {
  const std::shared_ptr<Connection> connection = shaking_.at(fd).connection;
  if (connection != nullptr) {
    Reaching& wanted = reaching(connection);
    if (wanted.dialing == fd) return fail_dial(wanted, problem, false);
    if (wanted.answering == fd) wanted.answering = -1;
    if (!wanted.dial) reaching_.erase(connection.get());
  }
  poller_.remove(fd);
  shaking_.erase(fd);
}

void PortLoop::end_slow() {
  const auto now = Clock::now();
  std::vector<int> slow;
  for (const auto& [fd, shaking] : shaking_)
    if (now >= shaking.end) slow.push_back(fd);
  for (const int fd : slow) end_shaking(fd, "it does not answer");
}

void PortLoop::open(Shaking& shaking) {
  const std::shared_ptr<Connection> connection = shaking.connection;
  Handshake made = std::move(shaking.handshake);
  const int fd = made.fd();
  Reaching& wanted = reaching(connection);
  if (wanted.dialing != fd) drop_attempt(wanted);
  reaching_.erase(connection.get());
  shaking_.erase(fd);
  if (const std::string problem = connection->open(made.take_wire(), made);
      !problem.empty())
    return connection->lose(problem);
  Open& opened = open_.emplace(fd, Open{connection}).first->second;
  watch(fd, opened);
  read(fd, opened);
}

}  // namespace allhands
