#include "allhands/transport/tcp/stream.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "allhands/base/error.hpp"

namespace allhands {
namespace {

// The most blocks of kept bytes that one system call sends.
constexpr std::size_t kMostBlocks = 64;
constexpr std::uint64_t kNever = ~std::uint64_t{0};
constexpr const char* kBytesLost =
    "the connection cannot go on, as the network has confirmed data that did not "
    "arrive: does a proxy stand between the hosts?";

}  // namespace

std::string Stream::reason() const {
  const std::lock_guard lock(reason_mutex_);
  return reason_;
}

void Stream::ask_for_attention() {
  if (!is_attended_.exchange(true)) owner_.attend(*this);
}

void Stream::want() {
  State idle = State::Idle;
  if (state() == State::Idle && state_.compare_exchange_strong(idle, State::Wanted))
    ask_for_attention();
}

// --- writing ---

void Stream::number(std::span<std::byte> frames) {
  for (std::size_t at = 0; at < frames.size();) {
    FrameHead head;
    std::memcpy(&head, frames.data() + at, sizeof(head));
    head.number = next_number_++;
    std::memcpy(frames.data() + at, &head, sizeof(head));
    at += sizeof(head) + padded(head.length);
  }
}

// Ignores a failure of the socket: the thread that reads finds it, after what came
// before.
void Stream::send(std::span<const std::byte> frames) {
  std::size_t sent = 0;
  replay_.reserve(frames.size(), 1);  // for what is sent and must be kept
  if (state() == State::Up && unsent() == 0) {
    iovec part = {const_cast<std::byte*>(frames.data()), frames.size()};
    const ssize_t count = wire_.send({&part, 1});
    if (count > 0) sent = static_cast<std::size_t>(count);
  }
  replay_.append(frames);
  sent_ += sent;
  if (sent != frames.size() || !wire_.flush()) keep();
  if (replay_.size() < confirm_at_) return;
  drop_confirmed();
  confirm_at_ = replay_.size() + kConfirmBytes;
}

bool Stream::is_writable() {
  if (state() == State::Up && unsent() == 0 && wire_.flush()) return true;
  is_room_awaited_ = true;
  return false;
}

// A frame that was begun must be finished. The first frame counts as begun in any case,
// so that frames wait for room only once it has gone.
std::size_t Stream::send_some(std::span<iovec> parts, std::size_t parts_each,
                              std::size_t least_lent) {
  std::size_t bytes = 0;
  for (const iovec& part : parts) bytes += part.iov_len;
  replay_.reserve(bytes, parts.size());  // for what is sent and must be kept
  const ssize_t count = wire_.send(parts);
  const std::size_t sent = count > 0 ? static_cast<std::size_t>(count) : 0;
  std::size_t num_taken = 0, taken = 0;
  for (; num_taken * parts_each < parts.size() && (num_taken == 0 || taken <= sent);
       ++num_taken)
    for (const iovec& part : parts.subspan(num_taken * parts_each, parts_each))
      taken += part.iov_len;
  std::uint64_t at = replay_.end();
  sent_ += sent;
  drop_confirmed();
  for (const iovec& part : parts.first(num_taken * parts_each)) {
    const std::size_t gone = std::min<std::uint64_t>(replay_.end() - at, part.iov_len);
    const std::span rest(static_cast<const std::byte*>(part.iov_base) + gone,
                         part.iov_len - gone);
    if (part.iov_len < least_lent)
      replay_.append(rest);
    else
      replay_.lend(rest);
    at += part.iov_len;
  }
  confirm_at_ = replay_.size() + kConfirmBytes;
  if (unsent() != 0 || !wire_.flush()) keep();
  next_number_ += num_taken;
  return num_taken;
}

// Notes that there is something to send.
void Stream::keep() {
  has_kept_.store(true, std::memory_order_seq_cst);
  if (state() == State::Up) ask_for_attention();
}

std::size_t Stream::drop_confirmed() {
  if (state() != State::Up || !is_heard()) return replay_.size();
  // The kernel may count bytes of the handshake too.
  const std::optional<std::uint64_t> unconfirmed = wire_.unconfirmed();
  if (unconfirmed && sent_ - replay_.begin() > *unconfirmed)
    replay_.drop(sent_ - *unconfirmed);
  return replay_.size();
}

bool Stream::is_lent(std::uint64_t written) {
  const std::lock_guard lock(write_mutex_);
  return replay_.first_lent() < written;
}

void Stream::keep_lent() {
  const std::lock_guard lock(write_mutex_);
  drop_confirmed();
  replay_.keep_lent();
}

bool Stream::flush() {
  bool is_done = false, is_awaited = false;
  {
    const std::lock_guard lock(write_mutex_);
    if (state() != State::Up) return false;
    is_done = flush_locked();
    if (is_done && !has_kept()) is_awaited = std::exchange(is_room_awaited_, false);
  }
  if (is_awaited) tell();
  return is_done;
}

bool Stream::flush_locked() {
  while (unsent() != 0) {
    std::array<iovec, kMostBlocks> parts;
    const std::size_t num_parts = replay_.gather(sent_, parts);
    const ssize_t count = wire_.send(std::span(parts).first(num_parts));
    if (count <= 0) return errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR;
    sent_ += static_cast<std::uint64_t>(count);
  }
  if (!wire_.flush()) return false;
  drop_confirmed();
  confirm_at_ = replay_.size() + kConfirmBytes;
  has_kept_.store(false, std::memory_order_seq_cst);
  return true;
}

bool Stream::has_arrived(std::uint64_t written) {
  if (written == 0) return true;
  {
    const std::lock_guard lock(write_mutex_);
    if (state() == State::Lost) return true;
    drop_confirmed();
    if (replay_.begin() >= written) return true;
    is_arrival_awaited_ = true;
  }
  ask_for_attention();
  return false;
}

bool Stream::tell_arrivals() {
  if (!is_arrival_awaited_) return true;
  {
    const std::lock_guard lock(write_mutex_);
    drop_confirmed();
    if (state() != State::Lost && replay_.size() != 0) return false;
    is_arrival_awaited_ = false;
  }
  tell();
  return true;
}

// --- reading ---

bool Stream::receive() {
  drives_.store(drives_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (has_kept_.load(std::memory_order_relaxed)) flush();
  const std::unique_lock lock(read_mutex_, std::try_to_lock);
  if (!lock) return false;  // another thread reads
  if (fd() >= 0 && read_locked()) return true;
  if (!failure_.empty()) ask_for_attention();
  return false;
}

Stream::Condition Stream::read() {
  const std::lock_guard lock(read_mutex_);
  if (fd() >= 0) read_locked();
  return condition_;
}

// Returns true if something came.
bool Stream::read_locked() {
  if (!failure_.empty()) return false;
  bool has_come = false;
  try {
    has_come = reader_.read(wire_);
  } catch (const SocketBroken& error) {
    failure_ = error.what();
    condition_ = Condition::Broken;
  } catch (const std::exception& error) {
    failure_ = error.what();
    condition_ = Condition::Spoiled;
  }
  received_.store(reader_.received(), std::memory_order_relaxed);
  return has_come;
}

void Stream::read_rest() {
  const std::lock_guard lock(read_mutex_);
  if (wire_.is_open())
    while (read_locked()) {
    }
}

// --- the stream's sockets ---

std::string Stream::open(Wire wire, const Handshake& made) {
  bool has_to_speak = false;
  {
    const std::lock_guard read_lock(read_mutex_);
    const std::lock_guard lock(write_mutex_);
    const std::uint64_t arrived = made.received_there();
    if (arrived < replay_.begin() || arrived > replay_.end()) return kBytesLost;
    replay_.drop(arrived);
    sent_ = arrived;
    failure_.clear();
    condition_ = Condition::Whole;
    num_known_there_ = num_known_there();
    num_sockets_ = made.number();
    // The side that was dialled already reads.
    silent_until_ =
        made.is_dialer() ? kNever : received_.load(std::memory_order_relaxed);
    has_to_speak = made.is_dialer() && unsent() == 0;
    has_kept_ = unsent() != 0;
    fd_ = wire.fd();
    wire_ = std::move(wire);
    state_ = State::Up;
  }
  if (has_to_speak) say_beat();
  flush();
  tell();
  return {};
}

void Stream::give_socket_up(const std::string& reason) {
  const std::lock_guard read_lock(read_mutex_);
  const std::lock_guard lock(write_mutex_);
  const std::lock_guard reason_lock(reason_mutex_);
  reason_ = failure_.empty() ? reason : failure_;
  drop_confirmed();  // the last time: from now on the peer may close its socket
  state_ = State::Broken;
  fd_ = -1;
  is_left_to_others_ = false;
}

bool Stream::break_socket() {
  const std::lock_guard lock(write_mutex_);
  return state() == State::Up && wire_.shut_down(SHUT_RDWR);
}

std::optional<std::uint64_t> Stream::end_socket() {
  read_rest();
  const std::lock_guard read_lock(read_mutex_);
  const std::lock_guard lock(write_mutex_);
  wire_.close();
  if (condition_ == Condition::Spoiled) return std::nullopt;
  return reader_.received();
}

void Stream::lose(const std::string& reason) {
  {
    const std::lock_guard read_lock(read_mutex_);
    const std::lock_guard lock(write_mutex_);
    {
      const std::lock_guard reason_lock(reason_mutex_);
      if (state() != State::Broken || condition_ == Condition::Spoiled)
        reason_ = failure_.empty() ? reason : failure_;
      else
        reason_ += "; " + reason;
    }
    state_ = State::Lost;
    fd_ = -1;
    wire_.close();
    sent_ = replay_.end();
    replay_.drop(sent_);
    replay_.shrink();
    has_kept_ = false;
  }
  tell();
}

void Stream::shut_down() {
  const std::lock_guard lock(write_mutex_);
  if (wire_.is_open()) wire_.shut_down(SHUT_WR);
}

unsigned Stream::beat() {
  bool is_quiet = false;
  {
    const std::lock_guard lock(write_mutex_);
    is_quiet = replay_.end() == written_before_ && unsent() == 0;
    written_before_ = replay_.end();
    drop_confirmed();
    replay_.shrink();
  }
  if (is_quiet) written_before_ = say_beat();
  const std::uint64_t received = received_.load(std::memory_order_relaxed);
  const bool has_come = std::exchange(received_before_, received) != received;
  silent_beats_ = has_come ? 0 : silent_beats_ + 1;
  return silent_beats_;
}

std::uint64_t Stream::say_beat() {
  FrameHead head = {0, FrameKind::Beat, 0, 0, 0, 0, 0};
  const std::lock_guard lock(write_mutex_);
  if (state() == State::Lost) return replay_.end();
  const std::span frame = std::as_writable_bytes(std::span(&head, 1));
  number(frame);
  send(frame);
  return replay_.end();
}

}  // namespace allhands
