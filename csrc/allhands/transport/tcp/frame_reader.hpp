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

// The receiver of frames. A frame makes no sense to a sink that does not override what
// is called for it.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  // A frame begins. Returns its channel, or null to skip the frame. Throws LinkError.
  virtual std::shared_ptr<Channel> on_head(const FrameHead& head);
  virtual void on_record(Channel&) {}
  virtual void on_saying(Channel&, std::span<const std::byte>) {}
  // The body of a record comes another way, which `kind` tells: Lane or Apart.
  // `channel` is null if it goes nowhere.
  virtual void on_announcement(FrameKind, const std::shared_ptr<Channel>&, LandingKey,
                               const Announcement&) {}
  virtual void on_lane_end();
  // Such a body begins. Returns where it goes; null: nowhere. Throws LinkError.
  virtual std::byte* on_body(std::uint64_t number, std::size_t bytes);
  virtual void on_body_end(std::uint64_t) {}
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
  // The body that is landing just now, if any, loses its place.
  void lose_landing() {
    landing_ = nullptr;
    is_landing_ = false;
  }
  // The channel of the frame that comes just now; null: none.
  const Channel* channel() const { return channel_.get(); }

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
  void begin_body();
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
  std::vector<std::byte> words_;      // of a rank, or an Announcement
  std::unique_ptr<std::byte[]> scratch_;
  std::uint64_t next_number_ = 1;
  std::uint64_t received_ = 0;
};

}  // namespace allhands
