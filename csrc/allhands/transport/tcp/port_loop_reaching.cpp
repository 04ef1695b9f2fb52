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

PortLoop::Reaching& PortLoop::reaching(const std::shared_ptr<Stream>& stream) {
  Reaching& found = reaching_[stream.get()];
  found.stream = stream;
  return found;
}

void PortLoop::end_reaching(Stream& stream) {
  const auto found = reaching_.find(&stream);
  if (found == reaching_.end()) return;
  drop_attempt(found->second);
  drop_answering(found->second);
  reaching_.erase(found);
}

// Strands begin at one address of the peer each.
unsigned PortLoop::rail_of(const Stream& stream) const {
  return rail_ + std::max(stream.strand(), 1u) - 1;
}

// The peer was silent for so long that it may be gone, or its socket may be broken. It
// is tried at its next address first, as the network of the last one may be.
void PortLoop::suspect(const std::shared_ptr<Stream>& stream) {
  Reaching& doubted = reaching(stream);
  if (!doubted.dial)
    doubted.dial.emplace(stream->peer(),
                         (most_beats_ - stream->silent_beats()) * beat_every_,
                         rail_of(*stream) + 1);
}

// After a stop of this process. An attempt that is under way goes on: it may have
// succeeded meanwhile.
void PortLoop::renew(Reaching& reaching) {
  reaching.dial->renew();
  for (const int fd : {reaching.dialing, reaching.answering})
    if (const auto found = shaking_.find(fd); found != shaking_.end())
      found->second.end = handshake_end(reaching);
}

void PortLoop::dial_due() {
  const auto now = Clock::now();
  std::vector<std::shared_ptr<Stream>> lost;
  for (auto& [key, each] : reaching_) {
    if (!each.dial || each.answering >= 0) continue;
    const auto connecting = connecting_.find(each.dialing);
    if (connecting != connecting_.end() && now >= each.dial->attempt_end())
      fail_dial(each, "it does not answer", false);
    if (each.dialing < 0 && each.dial->is_over())
      lost.push_back(each.stream);
    else if (each.dialing < 0 && now >= each.dial->next())
      begin_dial(each);
  }
  if (!lost.empty() && note_own_stop()) return forget_silence();
  for (const auto& stream : lost) {
    const auto found = reaching_.find(stream.get());
    if (found == reaching_.end()) continue;  // lost with a stream before it
    const Reaching& wanted = found->second;
    const std::string problem = wanted.dial->problem();
    if (wanted.was_stopped) {
      take_own_end(stream, "it was stopped for " + seconds(stopped_for_) +
                               ", where a host may be silent for " + seconds(silence_));
      continue;
    }
    if (stream->state() == Stream::State::Up) {
      lose(stream->fd(), silence_text() + "; " + problem);
      continue;
    }
    drop(stream, problem);
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
  connecting_.emplace(fd, Connecting{std::move(socket), reaching.stream});
}

void PortLoop::on_connected(int fd) {
  const int code = connection_error(fd);
  Connecting connecting = std::move(connecting_.at(fd));
  Reaching& wanted = reaching(connecting.stream);
  if (code != 0) return fail_dial(wanted, errno_text(code), code == ECONNREFUSED);
  connecting_.erase(fd);
  poller_.watch(fd, true, false);
  tune(fd);
  // The host answers after a silence. What is on its way over the old socket may never
  // come.
  if (connecting.stream->state() == Stream::State::Up)
    break_off(connecting.stream->fd(), silence_text());
  // This process closes its port.
  if (connecting.stream->state() == Stream::State::Lost) return;
  Handshake handshake = Handshake::dial(
      std::move(connecting.socket), credentials_, self_, connecting.stream->peer(),
      connecting.stream->num_sockets(), connecting.stream->strand());
  shaking_.emplace(
      fd, Shaking{std::move(handshake), handshake_end(wanted), connecting.stream});
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
  const bool is_broken = reaching.stream->state() == Stream::State::Broken;
  return is_broken && reaching.dial ? std::min(end, reaching.dial->end()) : end;
}

// --- handshakes ---

void PortLoop::shake(int fd) {
  Shaking& shaking = shaking_.at(fd);
  Handshake& handshake = shaking.handshake;
  handshake.advance();
  if (handshake.state() == Handshake::State::Asks) admit(fd, shaking);
  if (handshake.state() == Handshake::State::Accepted) {
    const std::optional<std::uint64_t> received = shaking.stream->end_socket();
    if (!received) return drop(shaking.stream, kNonsense);
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
      Reaching& wanted = reaching(shaking.stream);
      drop_attempt(wanted);
      return wanted.dial->give_way();
    }
    case Handshake::State::GivenUp:
      return take_own_end(shaking.stream, "nothing came from it for too long");
    case Handshake::State::Unwanted:
      return fail_dial(reaching(shaking.stream), handshake.problem(), true);
    case Handshake::State::Failed:
      return end_shaking(fd, handshake.problem());
  }
}

// Loses the whole connection of the stream, which is a copy, as the original may belong
// to what is dropped here.
void PortLoop::drop(std::shared_ptr<Stream> stream, const std::string& reason) {
  Connection& connection = stream->whole();
  let_go(connection);
  if (stream->strand() == 0) return connection.lose(reason);
  stream->lose(reason);
  connection.read_rest();  // a peer that is gone may have said why
  connection.lose(stream->reason());
}

// Gives up all sockets of the connection.
void PortLoop::let_go(Connection& connection) {
  const auto let_go = [this](Stream& stream) {
    stop_watching(stream.fd());
    end_reaching(stream);
  };
  let_go(connection);
  for (const auto& strand : connection.strands()) let_go(*strand);
}

void PortLoop::take_own_end(std::shared_ptr<Stream> stream, const std::string& why) {
  let_go(stream->whole());
  stream->whole().take_own_end(why);
}

void PortLoop::admit(int fd, Shaking& shaking) {
  const std::shared_ptr<Connection> whole = connection(shaking.handshake.peer());
  const unsigned strand = shaking.handshake.strand();
  const std::shared_ptr<Stream> from =
      strand == 0 ? whole : std::shared_ptr<Stream>(whole->strands().at(strand - 1));
  if (from->state() == Stream::State::Lost) {
    shaking.handshake.refuse(Handshake::Refusal::GivenUp);
    return;
  }
  if (!is_acceptable(*from, shaking.handshake.number())) {
    shaking.handshake.refuse(Handshake::Refusal::Busy);
    return;
  }
  if (from->state() == Stream::State::Up)
    break_off(from->fd(), "its process has dialled again");
  if (from->state() == Stream::State::Lost) {  // this process is closing its port
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
  shaking.stream = from;
  shaking.end = std::min(shaking.end, handshake_end(wanted));
  const std::uint64_t number =
      std::max(shaking.handshake.number(), from->num_sockets()) + 1;
  shaking.handshake.accept(number, *received);
}

// If two processes dial each other, the attempt of the one with the smaller name counts
// once it has connected. An attempt is too late if its dialer has had a newer socket
// since.
bool PortLoop::is_acceptable(Stream& from, std::uint64_t num_sockets) const {
  if (num_sockets < from.num_known_there()) return false;
  const auto found = reaching_.find(&from);
  const int dialing = found == reaching_.end() ? -1 : found->second.dialing;
  return dialing < 0 || connecting_.contains(dialing) || from.peer() < self_;
}

void PortLoop::end_shaking(int fd, std::string problem) {
  const std::shared_ptr<Stream> stream = shaking_.at(fd).stream;
  if (stream != nullptr) {
    Reaching& wanted = reaching(stream);
    if (wanted.dialing == fd) return fail_dial(wanted, problem, false);
    if (wanted.answering == fd) wanted.answering = -1;
    if (!wanted.dial) reaching_.erase(stream.get());
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
  const std::shared_ptr<Stream> stream = shaking.stream;
  Handshake made = std::move(shaking.handshake);
  const int fd = made.fd();
  Reaching& wanted = reaching(stream);
  if (wanted.dialing != fd) drop_attempt(wanted);
  reaching_.erase(stream.get());
  shaking_.erase(fd);
  if (const std::string problem = stream->open(made.take_wire(), made);
      !problem.empty())
    return drop(stream, problem);
  Open& opened = open_.emplace(fd, Open{stream}).first->second;
  watch(fd, opened);
  read(fd, opened);
}

}  // namespace allhands
