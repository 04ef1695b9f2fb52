#include "allhands/transport/tcp/connection.hpp"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
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

// Of groups that this process has not joined, or has just left.
constexpr std::size_t kMaxChannels = 1 << 16;

// A Bulk frame: its head, the record's, the body, what fills it up.
constexpr std::size_t kBulkParts = 4;
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
    if (state() == State::Lost) return written_;
    for (std::size_t at = 0; at < frames.size();) {
      FrameHead head;
      std::memcpy(&head, frames.data() + at, sizeof(head));
      head.number = next_number_++;
      channel.stamp(head);
      std::memcpy(frames.data() + at, &head, sizeof(head));
      at += sizeof(head) + padded(head.length);
    }
    send_locked(frames);
    written = written_;
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

// That the socket has failed is found out by who reads, after what came before.
void Connection::send_locked(std::span<const std::byte> bytes) {
  written_ += bytes.size();
  std::size_t sent = 0;
  if (state() == State::Up && unsent() == 0) {
    const ssize_t count =
        ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) sent = static_cast<std::size_t>(count);
  }
  keep(bytes.subspan(sent));
}

// What the socket has not taken.
void Connection::keep(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  if (kept_begin_ > unsent()) {  // or it would grow as long as some is left
    kept_.erase(kept_.begin(),
                kept_.begin() + static_cast<std::ptrdiff_t>(kept_begin_));
    kept_begin_ = 0;
  }
  kept_.insert(kept_.end(), bytes.begin(), bytes.end());
  has_kept_.store(true, std::memory_order_seq_cst);
  if (state() == State::Up) ask_for_attention();
}

Connection::Written Connection::write_bulk(std::span<const LandingRecord> records,
                                           Channel& channel) {
  const std::lock_guard lock(write_mutex_);
  if (state() == State::Lost) return {records.size(), written_};
  if (state() != State::Up || unsent() != 0) {
    is_room_awaited_ = true;
    return {0, written_};
  }
  records = records.first(std::min(records.size(), Landings::kMostAtOnce));
  std::array<FrameHead, Landings::kMostAtOnce> heads;
  std::array<iovec, Landings::kMostAtOnce * kBulkParts> parts;
  for (std::size_t i = 0; i < records.size(); ++i) {
    heads[i] = bulk_head(records[i], next_number_ + i);
    channel.stamp(heads[i]);
    cut_bulk(heads[i], records[i], &parts[i * kBulkParts]);
  }
  msghdr message = {};
  message.msg_iov = parts.data();
  message.msg_iovlen = records.size() * kBulkParts;
  const ssize_t count = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  auto sent = count > 0 ? static_cast<std::size_t>(count) : 0;
  std::size_t num_taken = 0;
  // Who has been begun has to be ended; the first that has not been stands for all of
  // them, and they go once it has.
  for (bool is_whole = true; is_whole && num_taken < records.size(); ++num_taken)
    for (std::size_t i = 0; i < kBulkParts; ++i) {
      const iovec& part = parts[num_taken * kBulkParts + i];
      const std::size_t gone = std::min(sent, part.iov_len);
      keep({static_cast<const std::byte*>(part.iov_base) + gone, part.iov_len - gone});
      is_whole = is_whole && gone == part.iov_len;
      sent -= gone;
      written_ += part.iov_len;
    }
  next_number_ += num_taken;
  is_room_awaited_ = is_room_awaited_ || num_taken < records.size();
  return {num_taken, written_};
}

bool Connection::flush() {
  bool is_done = false, is_awaited = false;
  {
    const std::lock_guard lock(write_mutex_);
    is_done = flush_locked();
    if (is_done && !has_kept()) is_awaited = std::exchange(is_room_awaited_, false);
  }
  if (is_awaited)
    for (const auto& channel : channels()) channel->tell_events();
  return is_done;
}

bool Connection::flush_locked() {
  while (unsent() != 0) {
    const ssize_t count = ::send(socket_.get(), kept_.data() + kept_begin_, unsent(),
                                 MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count <= 0) return errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR;
    kept_begin_ += static_cast<std::size_t>(count);
  }
  kept_.clear();
  if (kept_.capacity() > Channel::kWindow) kept_.shrink_to_fit();
  kept_begin_ = 0;
  has_kept_.store(false, std::memory_order_seq_cst);
  return true;
}

void Connection::forget(LandingKey key, Channel& channel) {
  if (!channel.forget(key)) return;
  const std::lock_guard lock(read_mutex_);
  if (channel.forget(key)) reader_.lose_landing(channel);
}

bool Connection::has_arrived(std::uint64_t written) {
  if (written == 0) return true;
  {
    const std::lock_guard lock(write_mutex_);
    if (state() == State::Lost) return true;
    int in_kernel = 0;
    if (state() == State::Up && ::ioctl(socket_.get(), SIOCOUTQ, &in_kernel) != 0)
      in_kernel = 0;
    // The kernel may have what belongs to the handshake, too.
    if (written_ >= written + unsent() + static_cast<std::uint64_t>(in_kernel))
      return true;
    is_arrival_awaited_ = true;
  }
  ask_for_attention();
  return false;
}

bool Connection::tell_arrivals() {
  if (!is_arrival_awaited_) return true;
  {
    const std::lock_guard lock(write_mutex_);
    int in_kernel = 0;
    if (state() == State::Up && ::ioctl(socket_.get(), SIOCOUTQ, &in_kernel) != 0)
      in_kernel = 0;
    if (unsent() != 0 || in_kernel != 0) return false;
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
  if (has_kept_.load(std::memory_order_relaxed)) flush();
  const std::unique_lock lock(read_mutex_, std::try_to_lock);
  if (!lock) return false;  // another thread does
  if (read_locked()) return true;
  if (!failure_.empty()) ask_for_attention();
  return false;
}

bool Connection::read() {
  const std::lock_guard lock(read_mutex_);
  read_locked();
  return failure_.empty();
}

// True: something came.
bool Connection::read_locked() {
  if (!failure_.empty() || fd() < 0) return false;
  try {
    const std::size_t count = reader_.read(fd());
    received_.store(received_.load(std::memory_order_relaxed) + count,
                    std::memory_order_relaxed);
    return count != 0;
  } catch (const std::exception& error) {
    failure_ = error.what();
    return false;
  }
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

void Connection::open(UnforkedFd socket) {
  {
    const std::lock_guard read_lock(read_mutex_);
    const std::lock_guard lock(write_mutex_);
    fd_ = socket.get();
    socket_ = std::move(socket);
    state_ = State::Up;
  }
  flush();
  for (const auto& channel : channels()) channel->tell_events();
}

void Connection::lose(const std::string& reason) {
  {
    const std::lock_guard read_lock(read_mutex_);
    const std::lock_guard lock(write_mutex_);
    {
      const std::lock_guard channels_lock(channels_mutex_);
      reason_ = failure_.empty() ? reason : failure_;
    }
    state_ = State::Lost;
    fd_ = -1;
    // Said outright: a forked child may hold a copy, and then close() says nothing.
    if (socket_.is_open()) ::shutdown(socket_.get(), SHUT_RDWR);
    socket_.reset();
    kept_ = {};
    kept_begin_ = 0;
    has_kept_ = false;
  }
  for (const auto& channel : channels()) channel->tell_events();
}

void Connection::shut_down() {
  const std::lock_guard lock(write_mutex_);
  if (socket_.is_open()) ::shutdown(socket_.get(), SHUT_WR);
}

bool Connection::beat() {
  for (const auto& channel : channels())
    if (channel->has_untold()) write(FrameKind::Room, {}, *channel);
  bool is_quiet = false;
  {
    const std::lock_guard lock(write_mutex_);
    is_quiet = written_ == written_before_ && unsent() == 0;
    written_before_ = written_;
  }
  if (is_quiet) {
    Channel none(0);
    written_before_ = write(FrameKind::Beat, {}, none);
  }
  const std::uint64_t received = received_.load(std::memory_order_relaxed);
  return std::exchange(received_before_, received) != received;
}

}  // namespace allhands
