#include "allhands/transport/tcp/connection.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "allhands/base/error.hpp"

namespace allhands {
namespace {

// The most channels of groups that this process has not joined, or has just left.
constexpr std::size_t kMaxChannels = 1 << 16;

// The parts of a Bulk frame: its head, the record's head, the body, the padding.
constexpr std::size_t kBulkParts = 4;
constexpr std::byte kPadding[kFrameAlign] = {};
// A smaller part of a frame is copied.
constexpr std::size_t kLeastLent = 4096;

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

// A strand that takes a body now.
struct FreeStrand {
  Strand* strand;
  std::size_t load;
};

// Those that take bodies now, the one with the least on its way first. Asks for those
// that were not used before. `is_up`: whether any is up.
std::vector<FreeStrand> free_strands(
    const std::vector<std::shared_ptr<Strand>>& strands, bool& is_up) {
  std::vector<FreeStrand> found;
  is_up = false;
  for (const std::shared_ptr<Strand>& strand : strands) {
    strand->want();
    if (strand->state() != Stream::State::Up) continue;
    is_up = true;
    if (const std::optional<std::size_t> load = strand->load())
      found.push_back({strand.get(), *load});
  }
  std::ranges::sort(found, {}, &FreeStrand::load);
  return found;
}

}  // namespace

Connection::Connection(ConnectionOwner& owner, ProcessName peer, unsigned num_strands)
    : Stream(owner, std::move(peer)), owner_(owner) {
  for (unsigned number = 1; number <= num_strands; ++number)
    strands_.push_back(
        std::make_shared<Strand>(owner, *this, bodies_, number, [this] { tell(); }));
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

void Connection::tell() {
  for (const auto& channel : channels()) channel->tell_events();
}

// --- writing ---

std::uint64_t Connection::write(std::span<std::byte> frames, Channel& channel) {
  std::uint64_t so_far = 0;
  {
    const std::lock_guard lock(write_mutex());
    if (state() == State::Lost) return written();
    for (std::size_t at = 0; at < frames.size();) {
      FrameHead head;
      std::memcpy(&head, frames.data() + at, sizeof(head));
      channel.stamp(head);
      std::memcpy(frames.data() + at, &head, sizeof(head));
      at += sizeof(head) + padded(head.length);
    }
    number(frames);
    send(frames);
    so_far = written();
  }
  if (state() == State::Idle) want();
  return so_far;
}

std::uint64_t Connection::write(FrameKind kind, std::span<const std::byte> body,
                                Channel& channel) {
  const FrameHead head = {static_cast<std::uint32_t>(body.size()), kind, 0, 0, 0, 0, 0};
  std::vector<std::byte> frame(sizeof(head) + padded(body.size()));
  std::memcpy(frame.data(), &head, sizeof(head));
  if (!body.empty()) std::memcpy(frame.data() + sizeof(head), body.data(), body.size());
  return write(frame, channel);
}

Connection::Written Connection::write_bulk(std::span<const LandingRecord> records,
                                           Channel& channel) {
  const std::lock_guard lock(write_mutex());
  if (state() == State::Lost) return {records.size(), written(), false};
  if (!is_writable()) return {0, written(), false};
  records = records.first(std::min(records.size(), Landings::kMostAtOnce));
  if (const std::optional<std::size_t> apart = write_apart(records, channel))
    return {*apart, written(), true};
  std::array<FrameHead, Landings::kMostAtOnce> heads;
  std::array<iovec, Landings::kMostAtOnce * kBulkParts> parts;
  for (std::size_t i = 0; i < records.size(); ++i) {
    heads[i] = bulk_head(records[i], next_number() + i);
    channel.stamp(heads[i]);
    cut_bulk(heads[i], records[i], &parts[i * kBulkParts]);
  }
  const std::size_t num_taken = send_some(
      std::span(parts).first(records.size() * kBulkParts), kBulkParts, kLeastLent);
  if (num_taken < records.size()) await_room();
  return {num_taken, written(), false};
}

// Sends the large ones at the front over strands, each strand one at a time. Returns
// how many; nothing if they have to go over the connection itself.
std::optional<std::size_t> Connection::write_apart(
    std::span<const LandingRecord> records, Channel& channel) {
  const auto is_small = [](const LandingRecord& record) {
    return record.body.size() < Strand::kLeastBytes;
  };
  if (strands_.empty()) return std::nullopt;
  records = records.first(static_cast<std::size_t>(
      std::ranges::find_if(records, is_small) - records.begin()));
  if (records.empty()) return std::nullopt;
  std::size_t count = 0;
  while (count < records.size()) {
    bool is_up = false;
    const std::vector<FreeStrand> free = free_strands(strands_, is_up);
    if (!is_up && count == 0) return std::nullopt;
    const auto some =
        records.subspan(count, std::min(free.size(), records.size() - count));
    if (some.empty()) break;  // a strand tells when it has room
    const std::uint64_t first = next_strand_body_;
    next_strand_body_ += some.size();
    announce(FrameKind::Apart, some, first, channel);
    for (std::size_t i = 0; i < some.size(); ++i)
      free[i].strand->write(first + i, some[i].body);
    count += some.size();
  }
  return count;
}

// Announces the bodies of these records, the first of which has number `first`.
void Connection::announce(FrameKind kind, std::span<const LandingRecord> records,
                          std::uint64_t first, Channel& channel) {
  constexpr std::size_t kFrameBytes = sizeof(FrameHead) + sizeof(Announcement);
  static_assert(padded(sizeof(Announcement)) == sizeof(Announcement));
  std::vector<std::byte> frames(records.size() * kFrameBytes);
  std::byte* at = frames.data();
  for (const LandingRecord& record : records) {
    FrameHead head = {sizeof(Announcement), kind, 0, 0, 0, 0, record.key};
    channel.stamp(head);
    const Announcement body = {record.head, record.body.size(), first++};
    std::memcpy(at, &head, sizeof(head));
    std::memcpy(at + sizeof(head), &body, sizeof(body));
    at += kFrameBytes;
  }
  number(frames);
  send(frames);
}

Connection::WrittenByLane Connection::write_by_lane(
    std::span<const LandingRecord> records, const std::shared_ptr<Channel>& channel,
    std::uint64_t end) {
  const std::lock_guard lock(write_mutex());
  const std::uint64_t first = next_lane_body_;
  if (state() == State::Lost) return {first, written()};
  for (const LandingRecord& record : records) {
    const std::uint64_t number = next_lane_body_++;
    end += Channel::cost(LandingRecord::kHeadBytes + record.body.size());
    UcxRequestPtr request =
        has_lane_ended_ ? nullptr : lane()->send(number, record.body, channel);
    lane_sends_.add(number, std::move(request), record.body, channel, end);
  }
  announce(FrameKind::Lane, records, first, *channel);
  if (has_lane_ended_) send_rest_of_lane();
  return {first, written()};
}

bool Connection::is_read(std::uint64_t body) {
  const std::lock_guard lock(write_mutex());
  return state() == State::Lost || lane_sends_.is_read(body);
}

void Connection::stop_reading(std::uint64_t body) {
  UcxRequestPtr request;
  {
    const std::lock_guard lock(write_mutex());
    request = lane_sends_.copy(body);
  }
  if (request != nullptr) lane()->stop(*request);
}

void Connection::drop_sends(const Channel& channel) {
  const std::lock_guard lock(write_mutex());
  lane_sends_.drop(channel);
}

void Connection::give_lane_up() {
  const std::string problem = lane()->problem();
  lane()->close();
  const std::lock_guard lock(write_mutex());
  if (state() == State::Lost || std::exchange(has_lane_ended_, true)) return;
  lane_problem_ = problem;
  FrameHead head = {0, FrameKind::LaneEnd, 0, 0, 0, 0, 0};
  const std::span frame = std::as_writable_bytes(std::span(&head, 1));
  number(frame);
  send(frame);
  send_rest_of_lane();
}

// Sends over the socket what the peer lacks of what went by the lane. Call under the
// write lock.
void Connection::send_rest_of_lane() {
  for (const LaneSends::Left& each : lane_sends_.take_all()) {
    const FrameHead head = {static_cast<std::uint32_t>(each.body.size()),
                            FrameKind::Body,
                            0,
                            0,
                            0,
                            0,
                            each.number};
    std::vector<std::byte> frame(sizeof(head) + padded(each.body.size()));
    std::memcpy(frame.data(), &head, sizeof(head));
    std::memcpy(frame.data() + sizeof(head), each.body.data(), each.body.size());
    number(frame);
    send(frame);
  }
}

// --- reading ---

void Connection::forget(LandingKey key, Channel& channel) {
  const bool is_landing = channel.forget(key);
  if (Lane* const way = lane(); way != nullptr && way->forget(key, channel))
    lose_landing([&] { return way->is_coming_nowhere(); });
  for (const Bodies::Coming& coming : bodies_.forget(key, channel))
    strands_[coming.strand - 1]->lose_body(coming.number);
  if (is_landing)
    lose_landing([&] { return channel.forget(key) && coming_channel() == &channel; });
}

bool Connection::receive() {
  if (state() != State::Up) {
    want();
    return false;
  }
  if (Lane* const way = lane()) way->help();
  bool has_come = Stream::receive();
  for (const std::shared_ptr<Strand>& strand : strands_)
    if (strand->receive()) has_come = true;
  return has_come;
}

void Connection::give_back() {
  Stream::give_back();
  for (const std::shared_ptr<Strand>& strand : strands_) strand->give_back();
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

void Connection::on_announcement(FrameKind kind,
                                 const std::shared_ptr<Channel>& channel,
                                 LandingKey key, const Announcement& announcement) {
  if (kind == FrameKind::Apart) return bodies_.announce(announcement, key, channel);
  if (lane() == nullptr)
    throw LinkError("a body comes by UCX, which was not agreed on");
  lane()->receive(announcement, key, channel);
}

void Connection::on_lane_end() {
  if (lane() == nullptr) return Stream::on_lane_end();
  give_lane_up();
  std::string why;
  {
    const std::lock_guard lock(write_mutex());
    why = lane_problem_;
  }
  owner_.tell_lane_end(*this, why);
}

std::byte* Connection::on_body(std::uint64_t number, std::size_t bytes) {
  if (lane() == nullptr) return Stream::on_body(number, bytes);
  return lane()->begin(number, bytes);
}

void Connection::on_body_end(std::uint64_t) { lane()->end(); }

// --- beginning and end ---

std::string Connection::open(Wire wire, const Handshake& made) {
  if (lane() == nullptr && !made.ucx_there().empty()) {
    own_lane_ = owner_.make_lane(*this, made.ucx_there());
    lane_ = own_lane_.get();
  }
  std::string problem = Stream::open(std::move(wire), made);
  if (lane() != nullptr && lane()->has_failed()) ask_for_attention();
  return problem;
}

void Connection::lose(const std::string& reason) {
  // These come first: nothing is written to a program's arrays once its peer counts as
  // gone.
  if (Lane* const way = lane()) way->close();
  for (const std::shared_ptr<Strand>& strand : strands_)
    if (strand->state() != State::Lost) strand->lose(reason);
  bodies_.clear();
  Stream::lose(reason);
  const std::lock_guard lock(write_mutex());
  lane_sends_.take_all();
}

// The channels come first: a thread that finds the peer gone asks what it has said
// last.
void Connection::take_own_end(const std::string& why) {
  for (const auto& channel : channels()) channel->take_own_end(why);
  lose(why);
}

unsigned Connection::beat() {
  for (const auto& channel : channels())
    if (channel->has_untold()) write(FrameKind::Room, {}, *channel);
  return Stream::beat();
}

}  // namespace allhands
