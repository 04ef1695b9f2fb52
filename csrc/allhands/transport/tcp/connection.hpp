// The connection to one process of another host, shared by all groups: a stream, made
// on first use, and a channel for each group.
//
// Bodies of some size may go past the stream's socket: by UCX, where both processes
// have it, see Lane, or else over strands, where both are to use some, see Strand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "allhands/transport/tcp/bodies.hpp"
#include "allhands/transport/tcp/channel.hpp"
#include "allhands/transport/tcp/frame.hpp"
#include "allhands/transport/tcp/lane.hpp"
#include "allhands/transport/tcp/lane_sends.hpp"
#include "allhands/transport/tcp/strand.hpp"
#include "allhands/transport/tcp/stream.hpp"

namespace allhands {

class Connection;

// What connections need from the port that owns them. Its functions may be called from
// any thread.
class ConnectionOwner : public StreamOwner {
 public:
  // The last words of this process in the group of `channel`; none if it has not left.
  virtual std::optional<Saying> parting(std::uint64_t channel) = 0;
  // The lane to a peer whose UCX worker has this address.
  virtual std::unique_ptr<Lane> make_lane(Connection& connection,
                                          const std::string& address) = 0;
  // Both processes have given up the lane between them.
  virtual void tell_lane_end(const Connection& connection, const std::string& why) = 0;
};

// The connection to one process of another host.
class Connection final : public Stream {
 public:
  // `owner` must outlive the connection.
  Connection(ConnectionOwner& owner, ProcessName peer, unsigned num_strands);

  Connection& whole() override { return *this; }
  unsigned strand() const override { return 0; }
  const std::vector<std::shared_ptr<Strand>>& strands() const { return strands_; }
  // The channel with this number, which is made if necessary.
  std::shared_ptr<Channel> channel(std::uint64_t id);
  void drop_channel(std::uint64_t id);

  // Any thread: sends whole frames, which lie one behind the other and have their
  // lengths and kinds set. Does nothing if the connection is lost. Returns the number
  // of bytes written to the connection so far.
  std::uint64_t write(std::span<std::byte> frames, Channel& channel);
  // Does the same for one frame.
  std::uint64_t write(FrameKind kind, std::span<const std::byte> body,
                      Channel& channel);
  struct Written {
    std::size_t num_records;
    std::uint64_t bytes;  // to the connection so far
    bool is_apart;        // whether bodies went over strands
  };
  // Any thread: sends as many of the records, from the first on, as the sockets take by
  // one call. If some are left, the channels' events tell when there is room. Bodies
  // that do not go over strands are lent, see is_lent().
  Written write_bulk(std::span<const LandingRecord> records, Channel& channel);
  // The way for large bodies; null: they go over sockets. Once there, it stays.
  Lane* lane() const { return lane_.load(std::memory_order_acquire); }
  struct WrittenByLane {
    std::uint64_t first;  // the number of the first body
    std::uint64_t bytes;  // to the connection so far
  };
  // Any thread: sends the records, with their bodies by the lane; nothing if the
  // connection is lost. `end`: the bytes of the channel up to the first record. The
  // bodies are read until is_read() or stop_reading().
  WrittenByLane write_by_lane(std::span<const LandingRecord> records,
                              const std::shared_ptr<Channel>& channel,
                              std::uint64_t end);
  bool is_read(std::uint64_t body);
  void stop_reading(std::uint64_t body);
  // Nobody asks for the bodies of this channel any more.
  void drop_sends(const Channel& channel);
  // Not under a lock: uses the lane no more, and sends over the socket what was not
  // popped. Idempotent.
  void give_lane_up();
  // Any thread: from now on, nothing lands with `key`.
  void forget(LandingKey key, Channel& channel);
  // Any thread: reads what has come over all sockets, and sends what was kept. Returns
  // true if something came; while another thread reads, it returns false.
  bool receive();
  // Any thread that has read and goes to sleep now: makes the port's thread read again.
  void give_back();

  // The rest is for the port's thread.
  std::string open(Wire wire, const Handshake& made) override;
  // Loses the strands, too.
  void lose(const std::string& reason) override;
  // Notes that the peer counts this process as dead.
  void take_own_end(const std::string& why);
  // Also tells the peer what the channels have not told it yet.
  unsigned beat() override;

 private:
  void tell() override;
  std::shared_ptr<Channel> on_head(const FrameHead& head) override;
  void on_record(Channel& channel) override;
  void on_saying(Channel& channel, std::span<const std::byte> body) override;
  void on_announcement(FrameKind kind, const std::shared_ptr<Channel>& channel,
                       LandingKey key, const Announcement& announcement) override;
  void on_lane_end() override;
  std::byte* on_body(std::uint64_t number, std::size_t bytes) override;
  void on_body_end(std::uint64_t number) override;

  std::vector<std::shared_ptr<Channel>> channels();
  std::optional<std::size_t> write_apart(std::span<const LandingRecord> records,
                                         Channel& channel);
  void announce(FrameKind kind, std::span<const LandingRecord> records,
                std::uint64_t first, Channel& channel);
  void send_rest_of_lane();

  ConnectionOwner& owner_;
  Bodies bodies_;
  std::vector<std::shared_ptr<Strand>> strands_;  // number i is at i - 1

  mutable std::mutex channels_mutex_;  // guards what follows
  std::unordered_map<std::uint64_t, std::shared_ptr<Channel>> channels_;

  // Guarded by the write lock.
  std::uint64_t next_lane_body_ = 0;
  LaneSends lane_sends_;
  bool has_lane_ended_ = false;
  std::string lane_problem_;  // why it was given up; empty: the peer did it
  std::uint64_t next_strand_body_ = 0;

  // Made by the port's thread.
  std::unique_ptr<Lane> own_lane_;
  std::atomic<Lane*> lane_ = nullptr;
};

}  // namespace allhands
