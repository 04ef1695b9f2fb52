#include "allhands/transport/tcp/frame_reader.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "allhands/base/error.hpp"
#include "allhands/kernels/copy_bytes.hpp"

namespace allhands {
namespace {

constexpr std::size_t kScratchBytes = std::size_t{64} << 10;
// The most bytes read in one call, so that one connection does not hold up a thread.
constexpr std::size_t kMaxBytes = std::size_t{4} << 20;
// The bytes in front of a body that may land.
constexpr std::size_t kBulkHeadBytes = sizeof(FrameHead) + LandingRecord::kHeadBytes;

// Whether such a frame announces a body.
bool announces(FrameKind kind) {
  return kind == FrameKind::Lane || kind == FrameKind::Apart;
}

// The most bytes behind the head of such a frame.
std::size_t most_bytes(FrameKind kind) {
  if (kind < FrameKind::Record) return 0;
  if (announces(kind)) return sizeof(Announcement);
  if (kind == FrameKind::Presence) return Saying::kMaxBytes;
  return Channel::kMaxRecord;
}

}  // namespace

std::shared_ptr<Channel> FrameSink::on_head(const FrameHead& head) {
  throw LinkError("a frame of kind " +
                  std::to_string(static_cast<unsigned>(head.kind)) +
                  " comes where only bodies do");
}

void FrameSink::on_lane_end() {
  throw LinkError("the end of a lane comes where no lane is");
}

std::byte* FrameSink::on_body(std::uint64_t number, std::size_t) {
  throw LinkError("body " + std::to_string(number) + " comes where no bodies do");
}

bool FrameReader::read(Wire& wire) {
  if (!scratch_) scratch_ = std::make_unique_for_overwrite<std::byte[]>(kScratchBytes);
  std::size_t total = 0;
  while (total < kMaxBytes || wire.has_received()) {
    // The rest of a body goes directly to its place, and what follows it into the
    // scratch memory. Where bodies land one behind the other, this reads no more than
    // the heads of the next one.
    const Place place = next_place();
    const bool is_direct = place.memory != nullptr;
    const std::size_t rest = is_direct ? place.bytes : 0;
    const std::size_t room = is_landing_ ? kFrameAlign + kBulkHeadBytes : kScratchBytes;
    const bool is_last = !is_direct || in_body_ + rest == body_length_;
    const iovec parts[2] = {{place.memory, rest}, {scratch_.get(), is_last ? room : 0}};
    const ssize_t count = wire.receive(parts);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (count == 0) throw SocketBroken("its process closed the connection");
    if (count < 0 && errno == EPROTO)
      throw SocketBroken(
          "what came cannot be decrypted: something on the way has changed it");
    // A new socket would not help: it would read into the same memory.
    if (count < 0 && (errno == EFAULT || errno == EINVAL || errno == ENOMEM))
      throw LinkError(errno_text(errno));
    if (count < 0) throw SocketBroken(errno_text(errno));
    const auto bytes = static_cast<std::size_t>(count);
    total += bytes;
    received_ += bytes;
    const std::size_t direct = std::min(bytes, rest);
    in_body_ += direct;
    if (direct != 0 && in_body_ == padded(body_length_)) end();
    take({scratch_.get(), bytes - direct});
    if (bytes < rest + parts[1].iov_len) break;  // the socket has no more
  }
  return total != 0;
}

// The place of the rest of the current body, as far as it goes to one place.
FrameReader::Place FrameReader::next_place() const {
  if (in_head_ < sizeof(head_) || in_body_ >= body_length_) return {nullptr, 0};
  const bool lands = in_body_ >= turn_;
  const std::size_t begin = lands ? turn_ : 0, end = lands ? body_length_ : turn_;
  std::byte* const memory = lands ? landing_ : body_;
  return {memory == nullptr ? nullptr : memory + (in_body_ - begin), end - in_body_};
}

void FrameReader::take(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    std::size_t count = 0;
    if (in_head_ < sizeof(head_)) {
      count = std::min(bytes.size(), sizeof(head_) - in_head_);
      std::memcpy(reinterpret_cast<std::byte*>(&head_) + in_head_, bytes.data(), count);
      in_head_ += count;
      bytes = bytes.subspan(count);
      if (in_head_ < sizeof(head_)) return;
      begin();
    } else {
      const Place place = next_place();
      const std::size_t rest =
          place.bytes != 0 ? place.bytes : padded(body_length_) - in_body_;
      count = std::min(bytes.size(), rest);
      if (place.memory != nullptr) copy_bytes(place.memory, bytes.data(), count);
      in_body_ += count;
      bytes = bytes.subspan(count);
    }
    if (in_body_ == padded(body_length_)) end();
  }
}

// Called when the head is complete.
void FrameReader::begin() {
  const auto refuse = [](const std::string& what, std::uint64_t number) {
    throw LinkError("a frame makes no sense: " + what + " is " +
                    std::to_string(number));
  };
  if (head_.number != next_number_++) refuse("its number", head_.number);
  body_ = landing_ = nullptr;
  is_landing_ = false;
  in_body_ = 0;
  turn_ = body_length_ = head_.length;
  if (head_.kind > FrameKind::Body || head_.kind == FrameKind::Ready)
    refuse("its kind", static_cast<std::uint64_t>(head_.kind));
  const bool is_announcement = announces(head_.kind);
  if (body_length_ > most_bytes(head_.kind) ||
      (is_announcement && body_length_ != sizeof(Announcement)))
    refuse("its length", body_length_);
  if (head_.kind == FrameKind::Body) return begin_body();
  if (head_.kind == FrameKind::Beat || head_.kind == FrameKind::LaneEnd) return;
  channel_ = sink_.on_head(head_);
  if (channel_ == nullptr && !is_announcement) return;
  if (head_.kind == FrameKind::Record || head_.kind == FrameKind::Bulk) begin_record();
  if (head_.kind != FrameKind::Presence && !is_announcement) return;
  words_.resize(body_length_);
  body_ = words_.data();
}

void FrameReader::begin_body() {
  landing_ = sink_.on_body(head_.key, body_length_);
  turn_ = 0;
  is_landing_ = landing_ != nullptr;
}

void FrameReader::begin_record() {
  constexpr std::size_t kHead = LandingRecord::kHeadBytes;
  if (head_.kind == FrameKind::Bulk && body_length_ > kHead) {
    const Landed landed = {head_.key, body_length_ - kHead};
    landing_ = channel_->begin_landing(landed);
    if (landing_ != nullptr) {
      turn_ = kHead;
      is_landing_ = true;
      body_ = channel_->reserve(body_length_, landed);
      return;
    }
  }
  body_ = channel_->reserve(body_length_);
}

// Called when the frame is complete.
void FrameReader::end() {
  in_head_ = 0;
  const std::shared_ptr<Channel> channel = std::move(channel_);
  channel_ = nullptr;
  body_ = landing_ = nullptr;
  if (announces(head_.kind)) {
    Announcement announcement;
    std::memcpy(&announcement, words_.data(), sizeof(announcement));
    return sink_.on_announcement(head_.kind, channel, head_.key, announcement);
  }
  if (head_.kind == FrameKind::Body) return sink_.on_body_end(head_.key);
  if (head_.kind == FrameKind::LaneEnd) return sink_.on_lane_end();
  if (channel == nullptr) return;
  if (head_.kind == FrameKind::Record || head_.kind == FrameKind::Bulk)
    sink_.on_record(*channel);
  if (head_.kind == FrameKind::Presence) sink_.on_saying(*channel, words_);
}

}  // namespace allhands
