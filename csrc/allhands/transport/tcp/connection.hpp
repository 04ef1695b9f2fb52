// The way to one process of another host, shared by all groups: one socket, made when
// somebody first needs it, and a channel for each group.
//
// Whoever writes tries to send at once; what the socket does not take is kept in order
// and sent by the port's thread. Whoever waits for something reads the socket itself;
// while nobody does, the port's thread reads.
//
// A socket that breaks is replaced by another one, which goes on at the very byte that
// the peer has not received: what was sent is kept until the kernel knows that the
// peer's has it. That is enough, as what a kernel has confirmed can still be read when
// its socket has failed. A connection that is lost stays lost: its peer is gone.
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

#include "allhands/transport/tcp/channel.hpp"
#include "allhands/transport/tcp/frame.hpp"
#include "allhands/transport/tcp/frame_reader.hpp"
#include "allhands/transport/tcp/handshake.hpp"
#include "allhands/transport/tcp/replay_buffer.hpp"
#include "allhands/transport/tcp/wire.hpp"

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
  // Broken: it had a socket, and is to get another one.
  enum class State { Idle, Wanted, Up, Broken, Lost };
  // Of the socket. Spoiled: what came over it is no frame.
  enum class Condition { Whole, Broken, Spoiled };

  // `owner` must outlive it.
  Connection(ConnectionOwner& owner, ProcessName peer)
      : owner_(owner), peer_(std::move(peer)), reader_(*this) {}

  const ProcessName& peer() const { return peer_; }
  State state() const { return state_.load(std::memory_order_acquire); }
  // Why it is lost, or broken.
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
  // Any thread: its socket breaks, as by an abort, and is replaced; false: it has none.
  bool break_socket();
  // Any thread that read and will sleep now: the port's thread is to read again.
  void give_back() {
    if (is_left_to_others_.load(std::memory_order_relaxed)) ask_for_attention();
  }

  // The port's thread.
  int fd() const { return fd_.load(std::memory_order_relaxed); }
  // From now on it is over this socket, on which `made` is done. False: the peer has
  // not got what was confirmed; the connection is to be lost.
  bool open(Wire wire, const Handshake& made);
  // Where it is not Whole, the socket is to be given up, or the connection to be lost.
  Condition read();
  // Nothing more is sent over the socket.
  void give_socket_up(const std::string& reason);
  // Takes what the socket that was given up has left, and closes it. Returns the number
  // of bytes received so far; nothing, where what came is no frame.
  std::optional<std::uint64_t> end_socket();
  // How many sockets it has had; and of how many the peer is sure to know: of one that
  // it has dialled once something came over it.
  std::uint64_t num_sockets() const { return num_sockets_; }
  std::uint64_t num_known_there() const {
    return is_heard() ? num_sockets_ : num_known_there_;
  }
  // Sends what was kept; false: some is left.
  bool flush();
  void lose(const std::string& reason);
  // The peer counts this process as dead.
  void take_own_end(const std::string& why);
  void shut_down();
  // Tells the channels' events what has_arrived() waited for; false: some have not.
  bool tell_arrivals();
  // Says that this process lives, where nothing else was sent since the last call, and
  // what the peer was not told of the channels. Returns silent_beats().
  unsigned beat();
  // Calls of beat() in a row before which nothing came, over whatever socket: one that
  // is made anew proves nothing if nothing comes over it either.
  unsigned silent_beats() const { return silent_beats_; }
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
  void drop_confirmed();
  void ask_for_attention();
  // Whether the peer has the socket, or reads from it at least.
  bool is_heard() const {
    return received_.load(std::memory_order_relaxed) != silent_until_;
  }
  void keep();
  void keep_bulk(std::span<const iovec> parts, std::size_t sent);
  std::uint64_t say_beat();
  bool flush_locked();
  std::vector<std::shared_ptr<Channel>> channels();
  void send_locked(std::span<const std::byte> bytes);
  std::uint64_t unsent() const { return replay_.end() - sent_; }

  // How much is written before the kernel is asked again what of it was confirmed.
  static constexpr std::size_t kConfirmBytes = std::size_t{64} << 10;

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

  // Replaced by who has both of the following.
  Wire wire_;

  std::mutex read_mutex_;  // guards reading from the socket, and what follows
  FrameReader reader_;
  std::string failure_;  // of reading: not empty, nothing more is read
  Condition condition_ = Condition::Whole;
  std::atomic<std::uint64_t> received_ = 0;  // bytes

  std::mutex write_mutex_;  // guards writing to the socket, and what follows
  std::uint64_t next_number_ = 1;
  ReplayBuffer replay_;
  std::uint64_t sent_ = 0;  // bytes, over this socket and those before
  std::size_t confirm_at_ = kConfirmBytes;
  // Of the socket: while no more than this was received, the peer may not have begun to
  // read, and what its kernel confirms may still be lost.
  std::uint64_t silent_until_ = 0;
  std::atomic<bool> has_kept_ = false;  // what is to be sent
  std::atomic<bool> is_arrival_awaited_ = false;
  bool is_room_awaited_ = false;

  // The port's thread alone.
  std::uint64_t received_before_ = 0;
  std::uint64_t written_before_ = 0;
  unsigned silent_beats_ = 0;
  std::uint64_t num_sockets_ = 0;
  std::uint64_t num_known_there_ = 0;  // before the last one
};

}  // namespace allhands
