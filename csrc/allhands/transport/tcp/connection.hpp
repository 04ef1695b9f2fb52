// The way to one process of another host, shared by all groups: one socket, made when
// somebody first needs it, and a channel for each group.
//
// Whoever writes tries to send at once; what the socket does not take is kept in order
// and sent by the port's thread. Whoever waits for something reads the socket itself;
// while nobody does, the port's thread reads. A connection that is lost stays lost: its
// peer is gone.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "allhands/net/unforked_fd.hpp"
#include "allhands/transport/tcp/channel.hpp"
#include "allhands/transport/tcp/frame.hpp"
#include "allhands/transport/tcp/frame_reader.hpp"
#include "allhands/transport/tcp/handshake.hpp"

namespace allhands {

class Connection;

// What connections ask of the port that has them, from any thread.
class ConnectionOwner {
 public:
  virtual ~ConnectionOwner() = default;
  // Its thread is to look at `connection` soon.
  virtual void attend(Connection& connection) = 0;
  // What this process has said last in the group of `channel`; none: it has not left.
  virtual std::optional<Saying> parting(std::uint64_t channel) = 0;
};

// The way to one process of another host.
class Connection final : private FrameSink {
 public:
  enum class State { Idle, Wanted, Up, Lost };

  // `owner` must outlive it.
  Connection(ConnectionOwner& owner, ProcessName peer)
      : owner_(owner), peer_(std::move(peer)), reader_(*this) {}

  const ProcessName& peer() const { return peer_; }
  State state() const { return state_.load(std::memory_order_acquire); }
  // Why it is lost.
  std::string reason() const;
  // The channel of this number, which is made if need be.
  std::shared_ptr<Channel> channel(std::uint64_t id);
  void drop_channel(std::uint64_t id);

  // Any thread: it is to be made, if it is not.
  void want();
  // Any thread: sends whole frames, which lie one behind the other and whose lengths
  // and kinds are set. Nothing where it is lost. Returns the number of bytes written to
  // it so far.
  std::uint64_t write(std::span<std::byte> frames, Channel& channel);
  // The same of one frame.
  std::uint64_t write(FrameKind kind, std::span<const std::byte> body,
                      Channel& channel);
  struct Written {
    std::size_t num_records;
    std::uint64_t bytes;  // to the connection so far
  };
  // Any thread: sends the first of the records, as many as the socket takes by one
  // call; where these are not all, the channels' events will tell.
  Written write_bulk(std::span<const LandingRecord> records, Channel& channel);
  // Any thread: nothing lands with `key` any more.
  void forget(LandingKey key, Channel& channel);
  // Any thread: whether the peer's host has got the first `written` bytes. Where it has
  // not, the channels' events will tell when it has.
  bool has_arrived(std::uint64_t written);
  // Any thread: reads what has come, and sends what was kept; true: something had come.
  bool receive();
  // Any thread that read and will sleep now: the port's thread is to read again.
  void give_back() {
    if (is_left_to_others_.load(std::memory_order_relaxed)) ask_for_attention();
  }

  // The port's thread.
  int fd() const { return fd_.load(std::memory_order_relaxed); }
  void open(UnforkedFd socket);
  // False: it failed, or the peer has closed it: it is to be lost.
  bool read();
  // Sends what was kept; false: some is left.
  bool flush();
  void lose(const std::string& reason);
  void shut_down();
  // Tells the channels' events what has_arrived() waited for; false: some have not.
  bool tell_arrivals();
  // Says that this process lives, where nothing else was sent since the last call, and
  // what the peer was not told of the channels. True: something came since then.
  bool beat();
  // How often program threads have read it.
  std::uint64_t num_drives() const { return drives_.load(std::memory_order_relaxed); }
  // Whether the port's thread leaves reading to those.
  void leave_to_others(bool is_left) {
    is_left_to_others_.store(is_left, std::memory_order_relaxed);
  }
  // Attended from now on anew.
  void begin_attending() { is_attended_.store(false, std::memory_order_seq_cst); }
  bool has_kept() const { return has_kept_.load(std::memory_order_seq_cst); }

 private:
  std::shared_ptr<Channel> on_head(const FrameHead& head) override;
  void on_record(Channel& channel) override;
  void on_saying(Channel& channel, std::span<const std::byte> body) override;

  bool read_locked();
  void ask_for_attention();
  void keep(std::span<const std::byte> bytes);
  bool flush_locked();
  std::vector<std::shared_ptr<Channel>> channels();
  void send_locked(std::span<const std::byte> bytes);
  std::uint64_t unsent() const { return kept_.size() - kept_begin_; }

  ConnectionOwner& owner_;
  const ProcessName peer_;
  std::atomic<State> state_ = State::Idle;
  std::atomic<bool> is_attended_ = false;
  std::atomic<bool> is_left_to_others_ = false;
  std::atomic<int> fd_ = -1;
  std::atomic<std::uint64_t> drives_ = 0;

  mutable std::mutex channels_mutex_;  // guards what follows
  std::unordered_map<std::uint64_t, std::shared_ptr<Channel>> channels_;
  std::string reason_;

  std::mutex read_mutex_;  // guards reading from the socket, and what follows
  FrameReader reader_;
  std::string failure_;  // of reading: not empty, nothing more is read
  std::atomic<std::uint64_t> received_ = 0;  // bytes

  std::mutex write_mutex_;  // guards writing to the socket, and what follows
  UnforkedFd socket_;
  std::uint64_t next_number_ = 1;
  std::uint64_t written_ = 0;    // bytes, sent or kept
  std::vector<std::byte> kept_;  // from kept_begin_ on
  std::size_t kept_begin_ = 0;
  std::atomic<bool> has_kept_ = false;
  std::atomic<bool> is_arrival_awaited_ = false;
  bool is_room_awaited_ = false;

  // The port's thread alone.
  std::uint64_t received_before_ = 0;
  std::uint64_t written_before_ = 0;
};

}  // namespace allhands
