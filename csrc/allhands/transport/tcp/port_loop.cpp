#include "allhands/transport/tcp/port_loop.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "allhands/base/error.hpp"
#include "allhands/base/seconds.hpp"
#include "allhands/base/start_thread.hpp"
#include "allhands/net/socket.hpp"

namespace allhands {
namespace {

using std::chrono::milliseconds;

// The most sockets whose peer has not proved itself; the oldest makes room for the
// next.
constexpr std::size_t kMaxStrangers = 256;
constexpr milliseconds kAcceptPause{50};
constexpr int kMaxAccepts = 16;
// How soon this thread reads again after other threads have stopped reading.
constexpr milliseconds kRest{1};
constexpr milliseconds kDrainLook{1};
// How often UCX makes progress until the sockets have their turn.
constexpr int kMaxProgress = 64;
constexpr milliseconds kLongestBeat{500};
constexpr unsigned kBeatsAfterStop = 2;
// A socket that is silent for so many beats while another one of the same connection is
// not is taken for broken.
constexpr unsigned kBeatsBesideOthers = 2;
constexpr std::chrono::seconds kWindingUp{1};
constexpr std::size_t kMaxPartings = 1 << 16;
constexpr const char* kClosed = "this process has closed its port";

}  // namespace

PortLoop::PortLoop(std::vector<Fd> listeners, ProcessName self, Clock::duration silence,
                   unsigned rail, std::shared_ptr<UcxWorker> ucx)
    : self_(std::move(self)),
      silence_(silence),
      rail_(rail),
      beat_every_(std::min<Clock::duration>(silence / 8, kLongestBeat)),
      most_beats_(static_cast<unsigned>(silence / beat_every_) - 1),
      suspicious_beats_(most_beats_ / 2 + 1),
      ucx_(std::move(ucx)) {
  poller_.add(wakeup_.fd());
  if (ucx_ != nullptr) {
    poller_.add(ucx_->fd());
    poller_.watch(ucx_->fd(), false, false);
  }
  for (Fd& listener : listeners) {
    poller_.add(listener.get());
    listeners_.emplace_back(std::move(listener));
  }
}

PortLoop::~PortLoop() { close(); }

void PortLoop::start(Credentials credentials, Say say) {
  credentials_ = std::move(credentials);
  say_ = std::move(say);
  thread_ = start_quiet_thread([this] { run(); });
}

void PortLoop::close() {
  const std::lock_guard closing(closing_mutex_);
  is_stopping_ = true;
  wakeup_.notify();
  if (thread_.joinable()) thread_.join();
  listeners_.clear();
  lose_all(kClosed);
}

// May be called from any thread once the port's thread has ended. The first reason
// stays.
void PortLoop::lose_all(const std::string& reason) {
  std::vector<std::shared_ptr<Connection>> all;
  {
    const std::lock_guard lock(mutex_);
    if (end_.empty()) end_ = reason;
    for (const auto& [name, connection] : connections_) all.push_back(connection);
  }
  for (const auto& connection : all)
    if (connection->state() != Stream::State::Lost) connection->lose(reason);
}

std::shared_ptr<Connection> PortLoop::connection(const ProcessName& peer) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Connection>& slot = connections_[peer];
  if (slot) return slot;
  slot = std::make_shared<Connection>(*this, peer, credentials_.num_strands);
  if (!end_.empty()) slot->lose(end_);
  return slot;
}

bool PortLoop::break_socket(const ProcessName& peer) {
  std::shared_ptr<Connection> found;
  {
    const std::lock_guard lock(mutex_);
    const auto entry = connections_.find(peer);
    if (entry == connections_.end()) return false;
    found = entry->second;
  }
  return found->break_socket();
}

void PortLoop::part(std::uint64_t channel, Saying saying) {
  const std::lock_guard lock(mutex_);
  if (partings_.insert_or_assign(channel, std::move(saying)).second)
    parted_.push_back(channel);
  if (parted_.size() <= kMaxPartings) return;
  partings_.erase(parted_.front());
  parted_.pop_front();
}

std::optional<Saying> PortLoop::parting(std::uint64_t channel) {
  const std::lock_guard lock(mutex_);
  const auto found = partings_.find(channel);
  if (found == partings_.end()) return std::nullopt;
  return found->second;
}

void PortLoop::attend(Stream& stream) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(stream.shared_from_this());
  }
  wakeup_.notify();
}

void PortLoop::run() {
  try {
    next_beat_ = Clock::now() + beat_every_;
    while (!is_stopping_.load(std::memory_order_relaxed)) {
      const std::span<const Readiness> all = poller_.wait(time_to_next_chore());
      if (note_own_stop()) forget_silence();
      for (const Readiness& ready : all) serve(ready);
      do_chores();
    }
    wind_up();
  } catch (const std::exception& error) {  // of the system, such as out of memory
    lose_all(std::string("this process cannot go on with its connections: ") +
             error.what());
  }
}

// This thread wakes up for each beat. If it is this late, its beats were as late.
bool PortLoop::note_own_stop() {
  const auto now = Clock::now();
  if (now - next_beat_ < (most_beats_ - 2) * beat_every_) return false;
  stopped_for_ = now - next_beat_;
  beats_since_stop_ = 0;
  return true;
}

// What was doubted or dialled before a stop gets its whole time again: the attempt to
// reach it has run out meanwhile, through no fault of the peer.
void PortLoop::forget_silence() {
  for (auto& [fd, open] : open_) open.stream->forget_silence();
  std::vector<std::shared_ptr<Stream>> doubted;
  for (auto& [key, each] : reaching_) {
    if (!each.dial) continue;
    if (each.stream->state() != Stream::State::Up)
      renew(each);
    else if (each.answering < 0)
      doubted.push_back(each.stream);
  }
  for (const auto& stream : doubted) end_reaching(*stream);
}

std::chrono::nanoseconds PortLoop::time_to_next_chore() const {
  Clock::time_point next = next_beat_;
  const auto no_later_than = [&next](Clock::time_point at) {
    next = std::min(next, at);
  };
  if (!is_accepting_) no_later_than(accept_again_);
  if (num_resting_ != 0) no_later_than(next_look_);
  if (ucx_ != nullptr && !is_ucx_watched_) no_later_than(ucx_look_);
  if (!draining_.empty()) no_later_than(Clock::now() + kDrainLook);
  for (const auto& [fd, shaking] : shaking_) no_later_than(shaking.end);
  for (const auto& [stream, reaching] : reaching_)
    if (reaching.dial && reaching.answering < 0) {
      if (reaching.dialing < 0) no_later_than(reaching.dial->next());
      if (connecting_.contains(reaching.dialing))
        no_later_than(reaching.dial->attempt_end());
    }
  return std::max(std::chrono::nanoseconds(0),
                  std::chrono::nanoseconds(next - Clock::now()));
}

// An event may belong to a socket that was closed since, and whose number another
// socket has now. That socket is then looked at in vain.
void PortLoop::serve(const Readiness& ready) {
  const int fd = ready.fd;
  if (fd == wakeup_.fd()) return wakeup_.clear();
  if (ucx_ != nullptr && fd == ucx_->fd()) return;  // one of the chores, in any case
  if (const auto found = open_.find(fd); found != open_.end()) {
    if (ready.is_writable && found->second.stream->flush()) watch(fd, found->second);
    if (ready.is_readable) read(fd, found->second);
    return;
  }
  if (shaking_.contains(fd)) return shake(fd);
  if (connecting_.contains(fd)) return on_connected(fd);
  accept_peers(fd);
}

void PortLoop::do_chores() {
  attend_waiting();
  end_slow();
  dial_due();
  std::erase_if(draining_, [](const auto& each) { return each->tell_arrivals(); });
  const auto now = Clock::now();
  if (num_resting_ != 0 && now >= next_look_) look_at_resting();
  if (now >= next_beat_) {
    if (note_own_stop()) forget_silence();  // it may have come amid these chores
    beat();
  }
  if (ucx_ != nullptr) tend_ucx();
  if (is_accepting_ || now < accept_again_) return;
  for (const UnforkedFd& listener : listeners_) poller_.add(listener.get());
  is_accepting_ = true;
}

// --- accepting ---

void PortLoop::accept_peers(int listener) {
  const auto is_it = [listener](const UnforkedFd& fd) { return fd.get() == listener; };
  if (std::none_of(listeners_.begin(), listeners_.end(), is_it)) return;
  for (int turn = 0; turn < kMaxAccepts && is_accepting_; ++turn) {
    UnforkedFd socket(accept_from(listener));
    if (!socket.is_open() && (errno == EAGAIN || errno == EINTR)) return;
    if (!socket.is_open()) {
      // Without a free descriptor, accept fails even if there is nobody left to accept.
      // The poller says whether somebody is.
      if (turn == 0) make_room();
      return;
    }
    welcome(std::move(socket));
  }
}

// Called when no descriptor is left: the stranger that came first is dropped.
void PortLoop::make_room() {
  if (!is_accepting_) return;
  const auto is_stranger = [](const auto& entry) {
    return entry.second.stream == nullptr;
  };
  int oldest = -1;
  for (const auto& entry : shaking_)
    if (is_stranger(entry) &&
        (oldest < 0 || entry.second.end < shaking_.at(oldest).end))
      oldest = entry.first;
  if (oldest >= 0) return end_shaking(oldest, "");
  for (const UnforkedFd& listener : listeners_) poller_.remove(listener.get());
  is_accepting_ = false;
  accept_again_ = Clock::now() + kAcceptPause;
}

void PortLoop::welcome(UnforkedFd socket) {
  if (shaking_.size() >= kMaxStrangers) make_room();
  const int fd = socket.get();
  tune(fd);
  try {
    poller_.add(fd);
  } catch (const Error&) {
    return make_room();  // this socket is dropped, and its peer comes again
  }
  shaking_.emplace(fd,
                   Shaking{Handshake::listen(std::move(socket), credentials_, self_),
                           Clock::now() + Handshake::kLimit, nullptr});
}

// --- connections that are made ---

void PortLoop::attend_waiting() {
  std::vector<std::shared_ptr<Stream>> waiting;
  {
    const std::lock_guard lock(mutex_);
    waiting.swap(waiting_);
  }
  for (const auto& stream : waiting) {
    stream->begin_attending();
    if (stream->state() == Stream::State::Wanted) {
      Reaching& wanted = reaching(stream);
      if (!wanted.dial) wanted.dial.emplace(stream->peer(), silence_, rail_of(*stream));
    }
    if (!stream->tell_arrivals() &&
        std::find(draining_.begin(), draining_.end(), stream) == draining_.end())
      draining_.push_back(stream);
    tend_lane(stream->whole());
    if (const auto found = open_.find(stream->fd()); found != open_.end()) {
      if (found->second.is_resting) end_rest(found->first, found->second);
      if (ucx_ != nullptr) ucx_helped_ = ucx_->num_helped();
      if (stream->has_kept()) watch(found->first, found->second);
      read(found->first, found->second);
    }
  }
}

void PortLoop::watch(int fd, const Open& open) {
  poller_.watch(fd, !open.is_resting, open.stream->has_kept());
}

void PortLoop::read(int fd, Open& open) {
  switch (open.stream->read()) {
    case Stream::Condition::Whole:
      break;
    case Stream::Condition::Broken:
      return break_off(fd, "");
    case Stream::Condition::Spoiled:
      return lose(fd, "");
  }
  const std::uint64_t drives = open.stream->num_drives();
  if (std::exchange(open.drives, drives) == drives || open.is_resting) return;
  if (num_resting_++ == 0) next_look_ = Clock::now() + kRest;
  open.is_resting = true;
  open.stream->leave_to_others(true);
  watch(fd, open);
}

std::unique_ptr<Lane> PortLoop::make_lane(Connection& connection,
                                          const std::string& address) {
  const std::string& peer = connection.peer();
  const std::string& secret = credentials_.secret;
  return std::make_unique<Lane>(ucx_, address, Lane::tags(secret, self_, peer),
                                Lane::tags(secret, peer, self_),
                                [&connection] { connection.ask_for_attention(); });
}

void PortLoop::tend_lane(Connection& connection) {
  Lane* const lane = connection.lane();
  if (lane != nullptr && lane->has_failed() && !lane->is_closed())
    connection.give_lane_up();
}

void PortLoop::tell_lane_end(const Connection& connection, const std::string& why) {
  if (say_ == nullptr) return;
  say_("UCX is given up for the process at " + endpoints_of(connection.peer()) +
       ", and large messages go over the connection: " +
       (why.empty() ? "that process has given it up" : why));
}

// Makes progress with UCX, and waits for its events while no other thread does so.
void PortLoop::tend_ucx() {
  const std::uint64_t helped = ucx_->num_helped();
  if (std::exchange(ucx_helped_, helped) != helped) {
    ucx_look_ = Clock::now() + kRest;
    return watch_ucx(false);
  }
  for (int turn = 0; turn < kMaxProgress; ++turn)
    if (!ucx_->progress() && ucx_->arm()) return watch_ucx(true);
  ucx_look_ = Clock::now();  // goes on after the other chores
  watch_ucx(false);
}

void PortLoop::watch_ucx(bool is_watched) {
  if (std::exchange(is_ucx_watched_, is_watched) != is_watched)
    poller_.watch(ucx_->fd(), is_watched, false);
}

void PortLoop::look_at_resting() {
  next_look_ = Clock::now() + kRest;
  for (auto& [fd, open] : open_) {
    if (!open.is_resting) continue;
    const std::uint64_t drives = open.stream->num_drives();
    if (std::exchange(open.drives, drives) == drives) end_rest(fd, open);
  }
}

void PortLoop::end_rest(int fd, Open& open) {
  open.drives = open.stream->num_drives();
  open.is_resting = false;
  open.stream->leave_to_others(false);
  --num_resting_;
  watch(fd, open);
}

void PortLoop::beat() {
  next_beat_ = Clock::now() + beat_every_;
  ++beats_since_stop_;
  std::vector<int> unsound, silent;
  for (auto& [fd, open] : open_) {
    if (open.stream->read() != Stream::Condition::Whole) unsound.push_back(fd);
    // Silence is counted in beats, not in time: while this process was stopped, its
    // peers were not silent.
    const bool was_suspect = open.stream->silent_beats() >= kBeatsBesideOthers;
    const unsigned silent_beats = open.stream->beat();
    if (silent_beats == 0 && was_suspect) end_reaching(*open.stream);
    if (silent_beats >= most_beats_) silent.push_back(fd);
  }
  for (const auto& [fd, open] : open_) {
    const unsigned silent_beats = open.stream->silent_beats();
    if (silent_beats >= suspicious_beats_ ||
        (silent_beats >= kBeatsBesideOthers && is_lively_beside(*open.stream)))
      suspect(open.stream);
  }
  for (const int fd : silent) lose(fd, silence_text());
  for (const int fd : unsound)
    if (const auto found = open_.find(fd); found != open_.end())
      read(fd, found->second);
}

std::string PortLoop::silence_text() const {
  return "nothing came from its host for " + seconds(silence_);
}

// Whether something has just come from the peer over another socket.
bool PortLoop::is_lively_beside(Stream& stream) const {
  const auto is_lively = [&](Stream& other) {
    return &other != &stream && open_.contains(other.fd()) && other.silent_beats() == 0;
  };
  Connection& whole = stream.whole();
  return is_lively(whole) ||
         std::ranges::any_of(whole.strands(),
                             [&](const auto& strand) { return is_lively(*strand); });
}

void PortLoop::stop_watching(int fd) {
  const auto found = open_.find(fd);
  if (found == open_.end()) return;
  if (found->second.is_resting) --num_resting_;
  open_.erase(found);
  poller_.remove(fd);
}

// Gives up the socket; another one will take its place.
void PortLoop::break_off(int fd, const std::string& reason) {
  if (is_stopping_.load(std::memory_order_relaxed)) return lose(fd, reason);
  const auto found = open_.find(fd);
  if (found == open_.end()) return;
  const std::shared_ptr<Stream> stream = found->second.stream;
  stop_watching(fd);
  stream->give_socket_up(reason);
  Reaching& wanted = reaching(stream);
  if (!wanted.dial) wanted.dial.emplace(stream->peer(), silence_, rail_of(*stream));
  // What happened during a stop is found right after it, maybe in the very chores that
  // find the stop. "Right after" is counted in beats, as this thread may be late again.
  note_own_stop();
  wanted.was_stopped =
      stopped_for_ != Clock::duration(0) && beats_since_stop_ <= kBeatsAfterStop;
}

void PortLoop::lose(int fd, const std::string& reason) {
  const auto found = open_.find(fd);
  if (found != open_.end()) drop(found->second.stream, reason);
}

// --- the end ---

// Sends what was written, and reads what has come: a socket that is closed with unread
// bytes takes away from the peer what it has not read yet.
void PortLoop::wind_up() {
  const auto end = Clock::now() + kWindingUp;
  if (is_accepting_)
    for (const UnforkedFd& listener : listeners_) poller_.remove(listener.get());
  listeners_.clear();
  is_accepting_ = true;  // for good, as there are no listeners left
  for (auto& [fd, open] : open_) {
    open.is_resting = false;
    watch(fd, open);
  }
  while ((!open_.empty() || has_more_to_tell()) && Clock::now() < end) {
    do_chores();
    for (auto& [fd, open] : open_) {
      if (open.is_closing || open.stream->has_kept()) continue;
      open.is_closing = true;
      open.stream->shut_down();
    }
    const std::chrono::nanoseconds left = end - Clock::now();
    for (const Readiness& ready : poller_.wait(std::min(left, time_to_next_chore())))
      serve(ready);
  }
  while (!open_.empty()) lose(open_.begin()->first, kClosed);
}

// Whether there is something left for peers whose connection is still being made.
bool PortLoop::has_more_to_tell() const {
  return std::any_of(reaching_.begin(), reaching_.end(), [](const auto& entry) {
    return entry.second.dial && entry.second.stream->has_kept();
  });
}

}  // namespace allhands
