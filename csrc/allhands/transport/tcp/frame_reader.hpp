// Cuts what comes over a socket into frames, and puts records where they are kept. It
// checks lengths before it allocates memory. Not thread-safe.
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

// The receiver of frames.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  // A frame begins. Returns its channel, or null to skip the frame. Throws LinkError.
  virtual std::shared_ptr<Channel> on_head(const FrameHead& head) = 0;
  virtual void on_record(Channel& channel) = 0;
  virtual void on_saying(Channel& channel, std::span<const std::byte> body) = 0;
  // The body of `record` comes by UCX. `channel` is null if it goes nowhere.
  virtual void on_lane(const std::shared_ptr<Channel>& channel, LandingKey key,
                       const LaneRecord& record) = 0;
};

// The socket failed, or the peer closed it: nothing more comes over it.
class SocketBroken : public LinkError {
 public:
  using LinkError::LinkError;
};

// Cuts what comes over a socket into frames.
class FrameReader {
 public:
  explicit FrameReader(FrameSink& sink) : sink_(sink) {}

  // Reads what `wire` has, up to a limit. Returns false if there is nothing now. Throws
  // SocketBroken, after which another socket may go on where this one ended, and
  // LinkError if what came is no frame.
  bool read(Wire& wire);
  // The number of bytes received in all.
  std::uint64_t received() const { return received_; }
  // The body of `channel` that is landing just now, if any, loses its place.
  void lose_landing(const Channel& channel);

 private:
  // Where a part of the frame's body goes, and how many bytes of it are still to come;
  // null:
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
  std::size_t in_head_ = 0;    // bytes of the head that are here
  std::byte* body_ = nullptr;  // where the frame's body goes; null: nowhere
  // Where the body goes from turn_ on; null: nowhere.
  std::byte* landing_ = nullptr;
  std::size_t turn_ = 0;              // position in the body
  bool is_landing_ = false;           // whether this frame lands, or the last one did
  std::size_t body_length_ = 0;       // of the frame, without padding
  std::size_t in_body_ = 0;           // bytes of the body that are here, with padding
  std::shared_ptr<Channel> channel_;  // of the frame
  std::vector<std::byte> words_;      // of a rank, or a LaneRecord
  std::unique_ptr<std::byte[]> scratch_;
  std::uint64_t next_number_ = 1;
  std::uint64_t received_ = 0;
};

}  // namespace allhands
