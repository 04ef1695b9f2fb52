// The connection to one process of another host, shared by all groups: one socket, made
// on first use, and a channel for each group.
//
// A thread that writes tries to send at once; what the socket does not take is kept in
// order and sent by the port's thread. A thread that waits for something reads the
// socket itself; while no thread does, the port's thread reads.
//
// A socket that breaks is replaced by another one, which goes on at exactly the first
// byte that the peer has not received. So what was sent is kept until the kernel knows
// that the peer's kernel has it. That is enough, as a process can still read what its
// kernel has confirmed after the socket has failed. A connection that is lost stays
// lost: its peer is gone.
//
// Where both processes have UCX, bodies of some size go by it, see Lane.
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
#include "allhands/transport/tcp/lane.hpp"
#include "allhands/transport/tcp/replay_buffer.hpp"
#include "allhands/transport/tcp/wire.hpp"

namespace allhands {

class Connection;

// What connections need from the port that owns them. Its functions may be called from
// any thread.
class ConnectionOwner {
 public:
  virtual ~ConnectionOwner() = default;
  // Makes the port's thread look at `connection` soon.
  virtual void attend(Connection& connection) = 0;
  // The last words of this process in the group of `channel`; none if it has not left.
  virtual std::optional<Saying> parting(std::uint64_t channel) = 0;
  // The lane to a peer whose UCX worker has this address.
  virtual std::unique_ptr<Lane> make_lane(Connection& connection,
                                          const std::string& address) = 0;
};

// The connection to one process of another host.
class Connection final : private FrameSink {
 public:
  // Broken: it had a socket, and will get another one.
  enum class State { Idle, Wanted, Up, Broken, Lost };
  // The condition of the socket. Spoiled: what came over it is no frame.
  enum class Condition { Whole, Broken, Spoiled };

  // `owner` must outlive the connection.
  Connection(ConnectionOwner& owner, ProcessName peer)
      : owner_(owner), peer_(std::move(peer)), reader_(*this) {}

  const ProcessName& peer() const { return peer_; }
  State state() const { return state_.load(std::memory_order_acquire); }
  // Why the connection is lost, or broken.
  std::string reason() const;
  // The channel with this number, which is made if necessary.
  std::shared_ptr<Channel> channel(std::uint64_t id);
  void drop_channel(std::uint64_t id);

  // Any thread: asks for the connection to be made, unless it is made already.
  void want();
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
  };
  // Any thread: sends as many of the records, from the first on, as the socket takes by
  // one call. If some are left, the channels' events tell when there is room.
  Written write_bulk(std::span<const LandingRecord> records, Channel& channel);
  // The way for large bodies; null: they go over the socket. Once there, it stays.
  Lane* lane() const { return lane_.load(std::memory_order_acquire); }
  // Any thread: sends the records, with their bodies by the lane, and adds what reads
  // these to `reading`; nothing if the connection is lost. Returns the bytes written to
  // the connection so far.
  std::uint64_t write_by_lane(std::span<const LandingRecord> records,
                              const std::shared_ptr<Channel>& channel,
                              std::vector<UcxRequestPtr>& reading);
  // Any thread: from now on, nothing lands with `key`.
  void forget(LandingKey key, Channel& channel);
  // Any thread: whether the peer's host has got the first `written` bytes. If it has
  // not, the channels' events tell when it has.
  bool has_arrived(std::uint64_t written);
  // Any thread: reads what has come, and sends what was kept. Returns true if something
  // had come.
  bool receive();
  // Any thread: breaks the socket, as an abort of the connection would; it is replaced.
  // Returns false if there is no socket.
  bool break_socket();
  // Any thread: makes the port's thread look at the connection soon.
  void ask_for_attention();
  // Any thread that has read and goes to sleep now: makes the port's thread read again.
  void give_back() {
    if (is_left_to_others_.load(std::memory_order_relaxed)) ask_for_attention();
  }

  // The rest is for the port's thread.
  int fd() const { return fd_.load(std::memory_order_relaxed); }
  // Moves the connection to this socket, on which `made` is done. Returns why it must
  // be lost, as the peer lacks something that cannot be sent again; empty: it need not.
  std::string open(Wire wire, const Handshake& made);
  // If the result is not Whole, the socket must be given up, or the connection lost.
  Condition read();
  // Sends nothing more over the socket.
  void give_socket_up(const std::string& reason);
  // Takes what the given-up socket still has, and closes it. Returns the number of
  // bytes received so far, or nothing if what came is no frame.
  std::optional<std::uint64_t> end_socket();
  // How many sockets the connection has had, and of how many the peer certainly knows.
  // It knows of a socket that it accepted once something has come over that socket.
  std::uint64_t num_sockets() const { return num_sockets_; }
  std::uint64_t num_known_there() const {
    return is_heard() ? num_sockets_ : num_known_there_;
  }
  // Sends what was kept. Returns false if some is left.
  bool flush();
  void lose(const std::string& reason);
  // Notes that the peer counts this process as dead.
  void take_own_end(const std::string& why);
  void shut_down();
  // Tells the channels' events that what has_arrived() was asked about has arrived.
  // Returns false if some has not.
  bool tell_arrivals();
  // Tells the peer that this process is alive, if nothing else was sent since the last
  // call, and what the channels have not told it yet. Returns silent_beats().
  unsigned beat();
  // The number of calls of beat() in a row since something came, over whatever socket:
  // a new socket proves nothing unless something comes over it.
  unsigned silent_beats() const { return silent_beats_; }
  // Counts anew.
  void forget_silence() { silent_beats_ = 0; }
  // How often program threads have read the connection.
  std::uint64_t num_drives() const { return drives_.load(std::memory_order_relaxed); }
  // Whether the port's thread leaves reading to program threads.
  void leave_to_others(bool is_left) {
    is_left_to_others_.store(is_left, std::memory_order_relaxed);
  }
  // From now on, a thread that asks for attention makes the port's thread look again.
  void begin_attending() { is_attended_.store(false, std::memory_order_seq_cst); }
  bool has_kept() const { return has_kept_.load(std::memory_order_seq_cst); }

 private:
  std::shared_ptr<Channel> on_head(const FrameHead& head) override;
  void on_record(Channel& channel) override;
  void on_saying(Channel& channel, std::span<const std::byte> body) override;
  void on_lane(const std::shared_ptr<Channel>& channel, LandingKey key,
               const LaneRecord& record) override;

  bool read_locked();
  void drop_confirmed();
  // Whether the peer has the socket, or at least reads from it.
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

  // How many bytes are written before the kernel is asked again how many were
  // confirmed.
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

  // Replaced by a thread that holds both of the following locks.
  Wire wire_;

  std::mutex read_mutex_;  // guards reading from the socket, and what follows
  FrameReader reader_;
  std::string failure_;  // why reading failed; if not empty, nothing more is read
  Condition condition_ = Condition::Whole;
  std::atomic<std::uint64_t> received_ = 0;  // bytes

  std::mutex write_mutex_;  // guards writing to the socket, and what follows
  std::uint64_t next_number_ = 1;
  std::uint64_t next_body_ = 0;  // of the lane
  ReplayBuffer replay_;
  std::uint64_t sent_ = 0;  // bytes, over this socket and those before it
  std::size_t confirm_at_ = kConfirmBytes;
  // As long as no more than this was received, the peer may not have begun to read from
  // the socket, and what its kernel confirms may still be lost.
  std::uint64_t silent_until_ = 0;
  std::atomic<bool> has_kept_ = false;  // whether there is something to send
  std::atomic<bool> is_arrival_awaited_ = false;
  bool is_room_awaited_ = false;

  // Made by the port's thread.
  std::unique_ptr<Lane> own_lane_;
  std::atomic<Lane*> lane_ = nullptr;

  // Used by the port's thread only.
  std::uint64_t received_before_ = 0;
  std::uint64_t written_before_ = 0;
  unsigned silent_beats_ = 0;
  std::uint64_t num_sockets_ = 0;
  std::uint64_t num_known_there_ = 0;  // without the last one
};

}  // namespace allhands
