#include "allhands/comm/segment_server.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <optional>
#include <vector>

#include "allhands/base/deadline.hpp"
#include "allhands/base/error.hpp"
#include "allhands/base/start_thread.hpp"
#include "allhands/host/process.hpp"
#include "allhands/net/wakeup.hpp"

namespace allhands {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kLinger{5};
// How long to wait before accepting again, if no descriptor was free for a connection.
constexpr milliseconds kPause{100};
// How often to look, while it lingers, whether those that may come still run.
constexpr milliseconds kLook{500};

Fd dup_of(int fd) {
  Fd copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy.is_open()) throw system_error(ErrorKind::Backend, "dup", errno);
  return copy;
}

}  // namespace

// Owned by its thread, so that it may outlive the server.
class SegmentServer::Service {
 public:
  Service(Fd listener, Fd segment, const Membership& membership, const Token& token)
      : listener_(std::move(listener)),
        segment_(std::move(segment)),
        token_(token),
        peers_(membership.peers),
        served_(peers_.all().size()),
        num_waiting_(membership.size() - 1) {
    served_[static_cast<std::size_t>(membership.rank)] = true;
  }

  void run() noexcept {
    try {
      while (!is_done() && !(lingering_ && lingering_->is_expired())) wait_and_serve();
    } catch (const std::exception&) {
      // Out of memory. A rank that comes now takes the segment from a rank that has it.
    }
    listener_.reset();
    segment_.reset();
    joiners_.clear();
  }

  void linger() {
    is_no_more_ = true;
    wakeup_.notify();
  }
  bool is_done() const { return num_waiting_ == 0; }

 private:
  struct Joiner {
    Fd connection;
    Deadline deadline;
    int rank;  // kStranger: it has not proved who it is
  };
  static constexpr int kStranger = -1;

  void wait_and_serve() {
    watch();
    const int count = poll(entries_.data(), entries_.size(), remaining_ms());
    if (count < 0 && errno != EINTR)
      throw system_error(ErrorKind::Backend, "poll", errno);
    if (count > 0) serve();
    drop_the_silent();
    if (look_ && look_->is_expired()) forget_the_dead();
  }

  void watch() {
    entries_.clear();
    entries_.push_back({wakeup_.fd(), POLLIN, 0});
    const bool is_accepting = !pause_ || pause_->is_expired();
    if (is_accepting) pause_.reset();
    entries_.push_back({is_accepting ? listener_.get() : -1, POLLIN, 0});
    for (const Joiner& joiner : joiners_)
      entries_.push_back({joiner.connection.get(), POLLIN, 0});
    if (lingering_) entries_[0].fd = -1;
  }

  // Time until the next event that is due; negative if there is none.
  int remaining_ms() const {
    std::optional<Deadline::Duration> least;
    const auto count = [&least](const Deadline& deadline) {
      least = std::min(least.value_or(Deadline::Duration::max()), deadline.remaining());
    };
    if (lingering_) count(*lingering_);
    if (look_) count(*look_);
    if (pause_) count(*pause_);
    for (const Joiner& joiner : joiners_) count(joiner.deadline);
    return least ? static_cast<int>(std::chrono::ceil<milliseconds>(*least).count())
                 : -1;
  }

  void serve() {
    for (std::size_t i = 2; i < entries_.size(); ++i)
      if (entries_[i].revents != 0) hear(joiners_[i - 2]);
    forget_closed();
    if (entries_[1].revents != 0) accept();
    if (is_no_more_ && !lingering_) {
      lingering_ = Deadline::after(kLinger);
      forget_the_dead();
    }
  }

  void accept() {
    Fd connection(
        accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection.is_open()) {
      const bool is_full = errno == EMFILE || errno == ENFILE;
      if (is_full && !drop_oldest_stranger()) pause_ = Deadline::after(kPause);
      return;
    }
    if (!segment::is_same_user(connection)) return;
    const auto strangers = std::count_if(joiners_.begin(), joiners_.end(),
                                         [](const Joiner& j) { return j.rank < 0; });
    if (static_cast<std::size_t>(strangers) >= kMaxStrangers) drop_oldest_stranger();
    joiners_.push_back({std::move(connection), Deadline::after(kSilence), kStranger});
    hear(joiners_.back());
    forget_closed();
  }

  // Reads the record that came, if any. Anything unexpected ends the connection.
  void hear(Joiner& joiner) {
    segment::Hello hello = {};
    const ssize_t bytes = recv(joiner.connection.get(), &hello, sizeof(hello), 0);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (joiner.rank != kStranger)
      end(joiner, bytes == 1 && std::memcmp(&hello, &segment::kTaken, 1) == 0);
    else if (bytes == sizeof(hello) && is_member(hello))
      hand_over(joiner, hello);
    else
      joiner.connection.reset();
  }

  bool is_member(const segment::Hello& hello) const {
    return hello.rank >= 0 && static_cast<std::size_t>(hello.rank) < served_.size() &&
           is_equal_constant_time(
               as_view(hello.proof),
               as_view(segment::joiner_proof(token_, hello.rank, hello.nonce)));
  }

  void hand_over(Joiner& joiner, const segment::Hello& hello) {
    for (Joiner& earlier : joiners_)  // it has given that one up
      if (earlier.rank == hello.rank) earlier.connection.reset();
    joiner.rank = hello.rank;
    segment::send_answer(joiner.connection,
                         {segment::server_proof(token_, hello.nonce)}, segment_.get());
  }

  // Sends Counted last: a rank that knows it was counted may be done with the group at
  // once.
  void end(Joiner& joiner, bool has_taken) {
    if (has_taken) {
      const auto rank = static_cast<std::size_t>(joiner.rank);
      if (!served_[rank]) --num_waiting_;
      served_[rank] = true;
      segment::send_record(joiner.connection, &segment::kCounted,
                           sizeof(segment::kCounted));
    }
    joiner.connection.reset();
  }

  // Who has ended will not come.
  void forget_the_dead() {
    for (std::size_t rank = 0; rank < served_.size(); ++rank) {
      if (served_[rank] || is_alive(peers_.all()[rank])) continue;
      served_[rank] = true;
      --num_waiting_;
    }
    look_ = Deadline::after(kLook);
  }

  bool drop_oldest_stranger() {
    const auto oldest = std::find_if(joiners_.begin(), joiners_.end(),
                                     [](const Joiner& j) { return j.rank < 0; });
    if (oldest == joiners_.end()) return false;
    joiners_.erase(oldest);
    return true;
  }

  void drop_the_silent() {
    std::erase_if(joiners_, [](const Joiner& j) { return j.deadline.is_expired(); });
  }

  void forget_closed() {
    std::erase_if(joiners_, [](const Joiner& j) { return !j.connection.is_open(); });
  }

  Fd listener_;
  Fd segment_;
  Token token_;
  const Peers peers_;
  Wakeup wakeup_;
  std::atomic<bool> is_no_more_ = false;  // the server is gone
  std::vector<Joiner> joiners_;           // oldest first
  std::vector<pollfd> entries_;           // the wakeup, the listener, the joiners
  std::vector<bool> served_;
  std::atomic<int> num_waiting_;
  std::optional<Deadline> lingering_;
  std::optional<Deadline> look_;  // when the next one is due
  std::optional<Deadline> pause_;
};

SegmentServer::SegmentServer(Fd listener, const SharedMemory& memory,
                             const Membership& membership, const Token& token)
    : service_(std::make_shared<Service>(std::move(listener), dup_of(memory.fd()),
                                         membership, token)),
      thread_(start_thread([service = service_] { service->run(); })) {}

SegmentServer::~SegmentServer() {
  service_->linger();
  if (service_->is_done())
    thread_.join();
  else
    thread_.detach();
}

}  // namespace allhands
