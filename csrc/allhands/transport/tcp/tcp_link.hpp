// A link over a channel of a connection.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "allhands/transport/link.hpp"
#include "allhands/transport/tcp/channel.hpp"
#include "allhands/transport/tcp/connection.hpp"

namespace allhands {

class TcpLink final : public Link, private Landings {
 public:
  TcpLink(std::shared_ptr<Connection> connection, std::shared_ptr<Channel> channel)
      : connection_(std::move(connection)), channel_(std::move(channel)) {}
  ~TcpLink() override {
    stop_reading();
    if (connection_->lane() != nullptr) connection_->drop_sends(*channel_);
  }

  std::size_t max_record() override { return Channel::kMaxRecord; }
  std::byte* reserve(std::size_t bytes) override;
  void commit() override;
  // Sends all that was committed, by one system call if the socket takes it.
  void wake_peer() override;
  bool is_safe_to_leave() const override {
    return staged_ == 0 && has_apart_arrived() && connection_->has_arrived(written_);
  }

  // A caller that asks also makes the connection read.
  bool has_record() const override {
    return channel_->has_record() || (connection_->receive() && channel_->has_record());
  }
  std::span<const std::byte> front() override { return channel_->front(); }
  void pop() override {
    if (channel_->pop()) connection_->write(FrameKind::Room, {}, *channel_);
  }
  void settle(std::size_t bytes) override {
    if (channel_->settle(bytes)) connection_->write(FrameKind::Room, {}, *channel_);
  }
  std::uint64_t settled() const override { return channel_->settled_there(); }

  Landings* landings() override { return this; }

 private:
  std::size_t write(std::span<const LandingRecord> records) override;
  std::uint64_t num_read() override;
  void copy_rest() override;
  void stop_reading() override;
  void expect(LandingKey key, std::span<std::byte> memory) override {
    channel_->expect(key, memory);
  }
  void forget(LandingKey key) override { connection_->forget(key, *channel_); }
  Landed landed() override { return channel_->landed(); }

  // A record whose body the lane may still read, or some whose bodies the socket may.
  struct Reading {
    std::optional<std::uint64_t> body;  // its number on the lane; none: the socket
    std::uint64_t number;               // of the first one here
    // Bytes up to the last one: of the channel, or of the connection.
    std::uint64_t end;
  };

  void grow(std::size_t needed);
  std::size_t write_to_socket(std::span<const LandingRecord> records);
  std::size_t write_by_lane(std::span<const LandingRecord> records);
  bool is_read(const Reading& each);
  bool is_any_lent() const {
    return std::ranges::any_of(reading_,
                               [](const Reading& each) { return !each.body; });
  }
  // Whether the peer has all bodies that went another way than the connection's socket.
  bool has_apart_arrived() const {
    return channel_->popped_there() >= sent_apart_ ||
           connection_->state() == Connection::State::Lost;
  }

  const std::shared_ptr<Connection> connection_;
  const std::shared_ptr<Channel> channel_;
  std::unique_ptr<std::byte[]> memory_;  // whole frames, one behind the other
  std::size_t capacity_ = 0;
  std::size_t staged_ = 0;    // bytes of frames that were committed and not written
  std::size_t reserved_ = 0;  // bytes of the record behind these
  // Bytes of the connection up to the last frame of this link.
  std::uint64_t written_ = 0;
  std::deque<Reading> reading_;
  std::uint64_t num_written_ = 0;  // records with bodies
  // Bytes of the channel up to the last record whose body went another way.
  std::uint64_t sent_apart_ = 0;
};

}  // namespace allhands
