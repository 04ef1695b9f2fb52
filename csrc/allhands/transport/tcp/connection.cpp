#include "allhands/transport/tcp/connection.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "allhands/base/error.hpp"

namespace allhands {
namespace {

// The most channels of groups that this process has not joined, or has just left.
constexpr std::size_t kMaxChannels = 1 << 16;

// The parts of a Bulk frame: its head, the record's head, the body, the padding.
constexpr std::size_t kBulkParts = 4;
// The most blocks of kept bytes that one system call sends.
constexpr std::size_t kMostBlocks = 16;
constexpr std::uint64_t kNever = ~std::uint64_t{0};
constexpr const char* kBytesLost =
    "the connection cannot go on, as the network has confirmed data that did not "
    "arrive: does a proxy stand between the hosts?";
constexpr std::byte kPadding[kFrameAlign] = {};

FrameHead bulk_head(const LandingRecord& record, std::uint64_t number) {
  const std::size_t length = LandingRecord::kHeadBytes + record.body.size();
  return {
      static_cast<std::uint32_t>(length), FrameKind::Bulk, 0, number, 0, 0, record.key};
}

void cut_bulk(const FrameHead& head, const LandingRecord& record, iovec* parts) {
  const std::span<const std::byte> all[kBulkParts] = {
      std::as_bytes(std::span(&head, 1)),
      record.head,
      record.body,
      {kPadding, padded(head.length) - head.length}};
  for (const std::span<const std::byte> part : all)
    *parts++ = {const_cast<std::byte*>(part.data()), part.size()};
}

}  // namespace

std::string Connection::reason() const {
  const std::lock_guard lock(channels_mutex_);
  return reason_;
}

std::shared_ptr<Channel> Connection::channel(std::uint64_t id) {
  const std::lock_guard lock(channels_mutex_);
  std::shared_ptr<Channel>& slot = channels_[id];
  if (!slot) slot = std::make_shared<Channel>(id);
  return slot;
}

void Connection::drop_channel(std::uint64_t id) {
  const std::lock_guard lock(channels_mutex_);
  channels_.erase(id);
}

std::vector<std::shared_ptr<Channel>> Connection::channels() {
  std::vector<std::shared_ptr<Channel>> all;
  const std::lock_guard lock(channels_mutex_);
  all.reserve(channels_.size());
  for (const auto& [id, channel] : channels_) all.push_back(channel);
  return all;
}

void Connection::ask_for_attention() {
  if (!is_attended_.exchange(true)) owner_.attend(*this);
}

void Connection::want() {
  State idle = State::Idle;
  if (state() == State::Idle && state_.compare_exchange_strong(idle, State::Wanted))
    ask_for_attention();
}

std::uint64_t Connection::write(std::span<std::byte> frames, Channel& channel) {
  std::uint64_t written = 0;
  {
    const std::lock_guard lock(write_mutex_);
    if (state() == State::Lost) return replay_.end();
    for (std::size_t at = 0; at < frames.size();) {
      FrameHead head;
      std::memcpy(&head, frames.data() + at, sizeof(head));
      head.number = next_number_++;
      channel.stamp(head);
      std::memcpy(frames.data() + at, &head, sizeof(head));
      at += sizeof(head) + padded(head.length);
    }
    send_locked(frames);
    written = replay_.end();
  }
  if (state() == State::Idle) want();
  return written;
}

std::uint64_t Connection::write(FrameKind kind, std::span<const std::byte> body,
                                Channel& channel) {
  const FrameHead head = {static_cast<std::uint32_t>(body.size()), kind, 0, 0, 0, 0, 0};
  std::vector<std::byte> frame(sizeof(head) + padded(body.size()));
  std::memcpy(frame.data(), &head, sizeof(head));
  if (!body.empty()) std::memcpy(frame.data() + sizeof(head), body.data(), body.size());
  return write(frame, channel);
}

// Ignores a failure of the socket: the thread that reads finds it, after what came
// before.
void Connection::send_locked(std::span<const std::byte> bytes) {
  std::size_t sent = 0;
  replay_.reserve(bytes.size());  // for what is sent and must be kept
  if (state() == State::Up && unsent() == 0) {
    iovec part = {const_cast<std::byte*>(bytes.data()), bytes.size()};
    const ssize_t count = wire_.send({&part, 1});
    if (count > 0) sent = static_cast<std::size_t>(count);
  }
  replay_.append(bytes);
  sent_ += sent;
  if (sent != bytes.size() || !wire_.flush()) keep();
  if (replay_.size() < confirm_at_) return;
  drop_confirmed();
  confirm_at_ = replay_.size() + kConfirmBytes;
}

// Notes that there is something to send.
void Connection::keep() {
  has_kept_.store(true, std::memory_order_seq_cst);
  if (state() == State::Up) ask_for_attention();
}

// Drops bytes that the peer's host has confirmed.
void Connection::drop_confirmed() {
  if (state() != State::Up || !is_heard()) return;
  // The kernel may count bytes of the handshake too.
  const std::optional<std::uint64_t> unconfirmed = wire_.unconfirmed();
  if (unconfirmed && sent_ - replay_.begin() > *unconfirmed)
    replay_.drop(sent_ - *unconfirmed);
}

Connection::Written Connection::write_bulk(std::span<const LandingRecord> records,
                                           Channel& channel) {
  const std::lock_guard lock(write_mutex_);
  if (state() == State::Lost) return {records.size(), replay_.end()};
  if (state() != State::Up || unsent() != 0 || !wire_.flush()) {
    is_room_awaited_ = true;
    return {0, replay_.end()};
  }
  records = records.first(std::min(records.size(), Landings::kMostAtOnce));
  std::array<FrameHead, Landings::kMostAtOnce> heads;
  std::array<iovec, Landings::kMostAtOnce * kBulkParts> parts;
  for (std::size_t i = 0; i < records.size(); ++i) {
    heads[i] = bulk_head(records[i], next_number_ + i);
    channel.stamp(heads[i]);
    cut_bulk(heads[i], records[i], &parts[i * kBulkParts]);
  }
  const std::span all = std::span(parts).first(records.size() * kBulkParts);
  std::size_t bytes = 0;
  for (const iovec& part : all) bytes += part.iov_len;
  replay_.reserve(bytes);  // for what is sent and must be kept
  const ssize_t count = wire_.send(all);
  std::size_t sent = count > 0 ? static_cast<std::size_t>(count) : 0;
  // A record that was begun must be finished. The first record counts as begun in any
  // case, so that the records wait for room only once it has gone.
  std::size_t num_taken = 0, taken = 0;
  while (num_taken < records.size() && (num_taken == 0 || taken <= sent))
    for (const iovec& part : std::span(&parts[num_taken++ * kBulkParts], kBulkParts))
      taken += part.iov_len;
  keep_bulk({parts.data(), num_taken * kBulkParts}, sent);
  next_number_ += num_taken;
  is_room_awaited_ = is_room_awaited_ || num_taken < records.size();
  return {num_taken, replay_.end()};
}

// Keeps `parts`, of which the first `sent` bytes were sent.
void Connection::keep_bulk(std::span<const iovec> parts, std::size_t sent) {
  std::uint64_t at = replay_.end();
  sent_ += sent;
  drop_confirmed();
  for (const iovec& part : parts) {
    const std::size_t gone = std::min<std::uint64_t>(replay_.end() - at, part.iov_len);
    replay_.append(
        {static_cast<const std::byte*>(part.iov_base) + gone, part.iov_len - gone});
    at += part.iov_len;
  }
  confirm_at_ = replay_.size() + kConfirmBytes;
  if (unsent() != 0 || !wire_.flush()) keep();
}

bool Connection::flush() {
  bool is_done = false, is_awaited = false;
  {
    const std::lock_guard lock(write_mutex_);
    if (state() != State::Up) return false;
    is_done = flush_locked();
    if (is_done && !has_kept()) is_awaited = std::exchange(is_room_awaited_, false);
  }
  if (is_awaited)
    for (const auto& channel : channels()) channel->tell_events();
  return is_done;
}

bool Connection::flush_locked() {
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

std::uint64_t Connection::write_by_lane(std::span<const LandingRecord> records,
                                        const std::shared_ptr<Channel>& channel,
                                        std::vector<UcxRequestPtr>& reading) {
  constexpr std::size_t kFrameBytes = sizeof(FrameHead) + sizeof(LaneRecord);
  static_assert(padded(sizeof(LaneRecord)) == sizeof(LaneRecord));
  std::vector<std::byte> frames(records.size() * kFrameBytes);
  const std::lock_guard lock(write_mutex_);
  if (state() == State::Lost) return replay_.end();
  std::byte* at = frames.data();
  for (const LandingRecord& record : records) {
    FrameHead head = {sizeof(LaneRecord), FrameKind::Lane, 0, next_number_++, 0, 0,
                      record.key};
    channel->stamp(head);
    const LaneRecord body = {record.head, record.body.size(), next_body_};
    std::memcpy(at, &head, sizeof(head));
    std::memcpy(at + sizeof(head), &body, sizeof(body));
    at += kFrameBytes;
    reading.push_back(lane()->send(next_body_++, record.body, channel));
  }
  send_locked(frames);
  return replay_.end();
}

void Connection::forget(LandingKey key, Channel& channel) {
  const bool is_landing = channel.forget(key);
  if (Lane* const way = lane()) way->forget(key, channel);
  if (!is_landing) return;
  const std::lock_guard lock(read_mutex_);
  if (channel.forget(key)) reader_.lose_landing(channel);
}

bool Connection::has_arrived(std::uint64_t written) {
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

bool Connection::tell_arrivals() {
  if (!is_arrival_awaited_) return true;
  {
    const std::lock_guard lock(write_mutex_);
    drop_confirmed();
    if (state() != State::Lost && replay_.size() != 0) return false;
    is_arrival_awaited_ = false;
  }
  for (const auto& channel : channels()) channel->tell_events();
  return true;
}

bool Connection::receive() {
  if (state() != State::Up) {
    want();
    return false;
  }
  drives_.store(drives_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (Lane* const way = lane()) way->help();
  if (has_kept_.load(std::memory_order_relaxed)) flush();
  const std::unique_lock lock(read_mutex_, std::try_to_lock);
  if (!lock) return false;  // another thread reads
  if (fd() >= 0 && read_locked()) return true;
  if (!failure_.empty()) ask_for_attention();
  return false;
}

Connection::Condition Connection::read() {
  const std::lock_guard lock(read_mutex_);
  if (fd() >= 0) read_locked();
  return condition_;
}

// Returns true if something came.
bool Connection::read_locked() {
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

std::shared_ptr<Channel> Connection::on_head(const FrameHead& head) {
  std::shared_ptr<Channel> channel;
  {
    const std::lock_guard lock(channels_mutex_);
    const auto found = channels_.find(head.channel);
    if (found != channels_.end()) channel = found->second;
  }
  if (channel == nullptr || head.kind == FrameKind::Join) {
    if (const auto parting = owner_.parting(head.channel)) {
      Channel gone(head.channel);
      if (head.kind == FrameKind::Join)
        write(FrameKind::Presence, parting->encode(), channel ? *channel : gone);
      if (channel == nullptr) return nullptr;
    }
  }
  if (channel == nullptr) {
    const std::lock_guard lock(channels_mutex_);
    if (channels_.size() >= kMaxChannels)
      throw LinkError("it writes to more than " + std::to_string(kMaxChannels) +
                      " groups that this process has not joined");
    std::shared_ptr<Channel>& slot = channels_[head.channel];
    if (!slot) slot = std::make_shared<Channel>(head.channel);
    channel = slot;
  }
  channel->see(head);
  return channel;
}

void Connection::on_record(Channel& channel) { channel.commit(); }

void Connection::on_saying(Channel& channel, std::span<const std::byte> body) {
  channel.take(Saying::decode(body));
}

void Connection::on_lane(const std::shared_ptr<Channel>& channel, LandingKey key,
                         const LaneRecord& record) {
  if (lane() == nullptr)
    throw LinkError("a body comes by UCX, which was not agreed on");
  lane()->receive(record, key, channel);
}

std::string Connection::open(Wire wire, const Handshake& made) {
  if (lane() == nullptr && !made.ucx_there().empty()) {
    own_lane_ = owner_.make_lane(*this, made.ucx_there());
    lane_ = own_lane_.get();
  }
  if (lane() != nullptr && lane()->has_lost()) return lane()->problem();
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
  for (const auto& channel : channels()) channel->tell_events();
  return {};
}

void Connection::give_socket_up(const std::string& reason) {
  const std::lock_guard read_lock(read_mutex_);
  const std::lock_guard lock(write_mutex_);
  const std::lock_guard channels_lock(channels_mutex_);
  reason_ = failure_.empty() ? reason : failure_;
  drop_confirmed();  // the last time: from now on the peer may close its socket
  state_ = State::Broken;
  fd_ = -1;
  is_left_to_others_ = false;
}

bool Connection::break_socket() {
  const std::lock_guard lock(write_mutex_);
  return state() == State::Up && wire_.shut_down(SHUT_RDWR);
}

std::optional<std::uint64_t> Connection::end_socket() {
  const std::lock_guard read_lock(read_mutex_);
  if (wire_.is_open())
    while (read_locked()) {
    }
  const std::lock_guard lock(write_mutex_);
  wire_.close();
  if (condition_ == Condition::Spoiled) return std::nullopt;
  return reader_.received();
}

void Connection::lose(const std::string& reason) {
  // Comes first: nothing is written to a program's arrays once its peer counts as gone.
  if (Lane* const way = lane()) way->close();
  {
    const std::lock_guard read_lock(read_mutex_);
    const std::lock_guard lock(write_mutex_);
    {
      const std::lock_guard channels_lock(channels_mutex_);
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
  for (const auto& channel : channels()) channel->tell_events();
}

// The channels come first: a thread that finds the peer gone asks what it has said
// last.
void Connection::take_own_end(const std::string& why) {
  for (const auto& channel : channels()) channel->take_own_end(why);
  lose(why);
}

void Connection::shut_down() {
  const std::lock_guard lock(write_mutex_);
  if (wire_.is_open()) wire_.shut_down(SHUT_WR);
}

unsigned Connection::beat() {
  for (const auto& channel : channels())
    if (channel->has_untold()) write(FrameKind::Room, {}, *channel);
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

std::uint64_t Connection::say_beat() {
  Channel none(0);
  return write(FrameKind::Beat, {}, none);
}

}  // namespace allhands
