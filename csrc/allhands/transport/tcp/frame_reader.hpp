// Cuts what comes over a socket into frames, and puts records where they are kept.
// Lengths are bounded before memory is taken. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "allhands/transport/link.hpp"
#include "allhands/transport/tcp/channel.hpp"
#include "allhands/transport/tcp/frame.hpp"
#include "allhands/transport/tcp/wire.hpp"

namespace allhands {

// Who takes frames.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  // A frame begins; null: what follows is of no use to anybody. Throws LinkError.
  virtual std::shared_ptr<Channel> on_head(const FrameHead& head) = 0;
  virtual void on_record(Channel& channel) = 0;
  virtual void on_saying(Channel& channel, std::span<const std::byte> body) = 0;
};

// A socket failed, or was closed by the peer: nothing more comes over it.
class SocketBroken : public LinkError {
 public:
  using LinkError::LinkError;
};

// Cuts what comes over a socket into frames.
class FrameReader {
 public:
  explicit FrameReader(FrameSink& sink) : sink_(sink) {}

  // Reads what `wire` has, but not endlessly. False: there is nothing now. Throws
  // SocketBroken, after which another socket may go on where this one has ended, and
  // LinkError where what came is no frame.
  bool read(Wire& wire);
  // Bytes in all.
  std::uint64_t received() const { return received_; }
  // What is landing of `channel` just now has no place any more.
  void lose_landing(const Channel& channel);

 private:
  // Where a part of the frame's body goes, and how much of it is to come; null:
  // nowhere.
  struct Place {
    std::byte* memory;
    std::size_t bytes;
  };

  Place next_place() const;
  void take(std::span<const std::byte> bytes);
  void begin();
  void begin_record();
  void end();

  FrameSink& sink_;
  FrameHead head_ = {};
  std::size_t in_head_ = 0;           // bytes of it that are here
  std::byte* body_ = nullptr;         // where the frame's body goes; null: nowhere
  std::byte* landing_ = nullptr;      // where it goes from turn_ on, or nowhere
  std::size_t turn_ = 0;              // in the body
  bool is_landing_ = false;           // the frame, or the last one
  std::size_t body_length_ = 0;       // of the frame, without padding
  std::size_t in_body_ = 0;           // bytes of it that are here, padding included
  std::shared_ptr<Channel> channel_;  // of the frame
  std::vector<std::byte> saying_;
  std::unique_ptr<std::byte[]> scratch_;
  std::uint64_t next_number_ = 1;
  std::uint64_t received_ = 0;
};

}  // namespace allhands
