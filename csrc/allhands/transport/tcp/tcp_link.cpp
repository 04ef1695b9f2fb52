#include "allhands/transport/tcp/tcp_link.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace allhands {
namespace {

// This many bytes of frames are sent at once, even if nobody has asked for it.
constexpr std::size_t kMaxStaged = std::size_t{128} << 10;
constexpr std::size_t kFirstBytes = 4096;

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

std::size_t TcpLink::write(std::span<const LandingRecord> records) {
  wake_peer();  // what was committed before must be sent before
  const auto bytes_of = [](const LandingRecord& record) {
    return LandingRecord::kHeadBytes + record.body.size();
  };
  std::size_t count = 0;
  // Takes the room before the peer can give it back.
  for (; count < records.size() && channel_->has_room(bytes_of(records[count]));
       ++count)
    channel_->take_room(bytes_of(records[count]));
  if (count == 0) return 0;
  const auto [taken, written] =
      connection_->write_bulk(records.first(count), *channel_);
  for (std::size_t i = taken; i < count; ++i) channel_->give_room(bytes_of(records[i]));
  written_ = written;
  return taken;
}

}  // namespace allhands
