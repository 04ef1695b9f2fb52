#include "allhands/transport/tcp/tcp_link.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace allhands {
namespace {

// This many bytes of frames are sent at once, even if nobody has asked for it.
constexpr std::size_t kMaxStaged = std::size_t{128} << 10;
constexpr std::size_t kFirstBytes = 4096;

std::size_t bytes_of(const LandingRecord& record) {
  return LandingRecord::kHeadBytes + record.body.size();
}

}  // namespace

std::byte* TcpLink::reserve(std::size_t bytes) {
  if (!channel_->has_room(bytes)) return nullptr;
  const std::size_t needed = staged_ + sizeof(FrameHead) + padded(bytes);
  if (needed > capacity_) grow(needed);
  reserved_ = bytes;
  return memory_.get() + staged_ + sizeof(FrameHead);
}

void TcpLink::grow(std::size_t needed) {
  const std::size_t capacity = std::max({needed, 2 * capacity_, kFirstBytes});
  auto memory = std::make_unique_for_overwrite<std::byte[]>(capacity);
  if (staged_ != 0) std::memcpy(memory.get(), memory_.get(), staged_);
  memory_ = std::move(memory);
  capacity_ = capacity;
}

void TcpLink::commit() {
  const FrameHead head = {
      static_cast<std::uint32_t>(reserved_), FrameKind::Record, 0, 0, 0, 0, 0};
  std::byte* const at = memory_.get() + staged_;
  std::memcpy(at, &head, sizeof(head));
  std::memset(at + sizeof(head) + reserved_, 0, padded(reserved_) - reserved_);
  staged_ += sizeof(head) + padded(reserved_);
  channel_->take_room(reserved_);
  if (staged_ >= kMaxStaged) wake_peer();
}

void TcpLink::wake_peer() {
  if (staged_ == 0) return;
  written_ = connection_->write({memory_.get(), staged_}, *channel_);
  staged_ = 0;
}

// Records of one kind at a time: bodies for the lane, or others.
std::size_t TcpLink::write(std::span<const LandingRecord> records) {
  wake_peer();  // what was committed before must be sent before
  Lane* const lane = connection_->lane();
  const bool has_lane = lane != nullptr && !lane->has_failed();
  const auto goes_by_lane = [&](const LandingRecord& record) {
    return has_lane && record.body.size() >= Lane::kLeastBytes;
  };
  const bool is_lane = goes_by_lane(records.front());
  std::size_t count = 0;
  // Takes the room before the peer can give it back.
  for (; count < records.size() && goes_by_lane(records[count]) == is_lane &&
         channel_->has_room(bytes_of(records[count]));
       ++count)
    channel_->take_room(bytes_of(records[count]));
  if (count == 0) return 0;
  records = records.first(count);
  count = is_lane ? write_by_lane(records) : write_to_socket(records);
  num_written_ += count;
  return count;
}

std::size_t TcpLink::write_to_socket(std::span<const LandingRecord> records) {
  const auto [taken, written, is_apart] = connection_->write_bulk(records, *channel_);
  for (const LandingRecord& record : records.subspan(taken))
    channel_->give_room(bytes_of(record));
  written_ = written;
  if (is_apart)
    sent_apart_ = channel_->sent();
  else if (taken != 0)
    reading_.push_back({std::nullopt, num_written_, written});
  return taken;
}

std::size_t TcpLink::write_by_lane(std::span<const LandingRecord> records) {
  sent_apart_ = channel_->sent();
  std::uint64_t end = sent_apart_;
  for (const LandingRecord& record : records) end -= Channel::cost(bytes_of(record));
  const auto [first, bytes] = connection_->write_by_lane(records, channel_, end);
  written_ = bytes;
  for (std::size_t i = 0; i < records.size(); ++i) {
    end += Channel::cost(bytes_of(records[i]));
    reading_.push_back({first + i, num_written_ + i, end});
  }
  return records.size();
}

std::uint64_t TcpLink::num_read() {
  if (reading_.empty()) return num_written_;
  if (Lane* const lane = connection_->lane()) lane->help();
  while (!reading_.empty() && is_read(reading_.front())) reading_.pop_front();
  return reading_.empty() ? num_written_ : reading_.front().number;
}

// The lane's bodies are left to it: the peer reads them soon.
void TcpLink::copy_rest() {
  if (is_any_lent()) connection_->keep_lent();
}

void TcpLink::stop_reading() {
  copy_rest();
  for (const Reading& each : reading_)
    if (each.body) connection_->stop_reading(*each.body);
  reading_.clear();
}

// Asks the connection, under its lock, only if there is a chance.
bool TcpLink::is_read(const Reading& each) {
  if (!each.body) return !connection_->is_lent(each.end);
  const bool may_be =
      channel_->popped_there() >= each.end || connection_->lane()->is_closed();
  return may_be && connection_->is_read(*each.body);
}

}  // namespace allhands
