// A stream of frames to one process of another host, over one socket at a time.
//
// A thread that writes tries to send at once; what the socket does not take is kept in
// order and sent by the port's thread. A thread that waits for something reads the
// socket itself; while no thread does, the port's thread reads.
//
// A socket that breaks is replaced by another one, which goes on at exactly the first
// byte that the peer has not received. So what was sent is kept until the kernel knows
// that the peer's kernel has it. That is enough, as a process can still read what its
// kernel has confirmed after the socket has failed. A stream that is lost stays lost:
// its peer is gone.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "allhands/transport/tcp/frame.hpp"
#include "allhands/transport/tcp/frame_reader.hpp"
#include "allhands/transport/tcp/handshake.hpp"
#include "allhands/transport/tcp/replay_buffer.hpp"
#include "allhands/transport/tcp/wire.hpp"

namespace allhands {

class Connection;
class Stream;

// What streams need from the port that owns them.
class StreamOwner {
 public:
  virtual ~StreamOwner() = default;
  // Any thread: makes the port's thread look at `stream` soon.
  virtual void attend(Stream& stream) = 0;
};

// A stream of frames to one process of another host.
class Stream : public std::enable_shared_from_this<Stream>, protected FrameSink {
 public:
  // Broken: it had a socket, and will get another one.
  enum class State { Idle, Wanted, Up, Broken, Lost };
  // The condition of the socket. Spoiled: what came over it is no frame.
  enum class Condition { Whole, Broken, Spoiled };

  // `owner` must outlive the stream.
  Stream(StreamOwner& owner, ProcessName peer)
      : owner_(owner), peer_(std::move(peer)), reader_(*this) {}
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() override = default;

  const ProcessName& peer() const { return peer_; }
  // The connection that it belongs to, and its number there; 0: it is the connection.
  virtual Connection& whole() = 0;
  virtual unsigned strand() const = 0;
  State state() const { return state_.load(std::memory_order_acquire); }
  // Why the stream is lost, or broken.
  std::string reason() const;

  // Any thread: asks for the stream to be made, unless it is made already.
  void want();
  // Any thread: whether the peer's host has got the first `written` bytes. If it has
  // not, tell() is called when it has.
  bool has_arrived(std::uint64_t written);
  // Any thread: whether some of the first `written` bytes are still read from the
  // arrays that they are of, which must stay as they are as long.
  bool is_lent(std::uint64_t written);
  // Any thread: copies what is read from arrays, so that these are free.
  void keep_lent();
  // Any thread: reads what has come, and sends what was kept. Returns true if something
  // came; while another thread reads, it returns false.
  bool receive();
  // Any thread: breaks the socket, as an abort of the connection would; it is replaced.
  // Returns false if there is no socket.
  bool break_socket();
  // Any thread: makes the port's thread look at the stream soon.
  void ask_for_attention();
  // Any thread that has read and goes to sleep now: makes the port's thread read again.
  void give_back() {
    if (is_left_to_others_.load(std::memory_order_relaxed)) ask_for_attention();
  }

  // The rest is for the port's thread.
  int fd() const { return fd_.load(std::memory_order_relaxed); }
  // Moves the stream to this socket, on which `made` is done. Returns why it must be
  // lost, as the peer lacks something that cannot be sent again; empty: it need not.
  virtual std::string open(Wire wire, const Handshake& made);
  // If the result is not Whole, the socket must be given up, or the stream lost.
  Condition read();
  // Sends nothing more over the socket.
  void give_socket_up(const std::string& reason);
  // Takes what the socket still has, if it has one.
  void read_rest();
  // Takes what the given-up socket still has, and closes it. Returns the number of
  // bytes received so far, or nothing if what came is no frame.
  std::optional<std::uint64_t> end_socket();
  // How many sockets the stream has had, and of how many the peer certainly knows. It
  // knows of a socket that it accepted once something has come over that socket.
  std::uint64_t num_sockets() const { return num_sockets_; }
  std::uint64_t num_known_there() const {
    return is_heard() ? num_sockets_ : num_known_there_;
  }
  // Sends what was kept. Returns false if some is left.
  bool flush();
  virtual void lose(const std::string& reason);
  void shut_down();
  // Calls tell() if what has_arrived() was asked about has arrived. Returns false if
  // some has not.
  bool tell_arrivals();
  // Tells the peer that this process is alive, if nothing else was sent since the last
  // call. Returns silent_beats().
  virtual unsigned beat();
  // The number of calls of beat() in a row since something came, over whatever socket:
  // a new socket proves nothing unless something comes over it.
  unsigned silent_beats() const { return silent_beats_; }
  // Counts anew.
  void forget_silence() { silent_beats_ = 0; }
  // How often program threads have read the stream.
  std::uint64_t num_drives() const { return drives_.load(std::memory_order_relaxed); }
  // Whether the port's thread leaves reading to program threads.
  void leave_to_others(bool is_left) {
    is_left_to_others_.store(is_left, std::memory_order_relaxed);
  }
  // From now on, a thread that asks for attention makes the port's thread look again.
  void begin_attending() { is_attended_.store(false, std::memory_order_seq_cst); }
  bool has_kept() const { return has_kept_.load(std::memory_order_seq_cst); }

 protected:
  static constexpr std::size_t kNothingLent = static_cast<std::size_t>(-1);

  // Tells whoever waits that something has changed: there is room, bytes have arrived,
  // or the stream is up or lost.
  virtual void tell() = 0;

  // The rest needs the write lock.
  std::uint64_t written() const { return replay_.end(); }
  std::uint64_t unsent() const { return replay_.end() - sent_; }
  std::uint64_t next_number() const { return next_number_; }
  // Gives each of these whole frames, which lie one behind the other, its number.
  void number(std::span<std::byte> frames);
  // Sends the frames, and keeps what the socket does not take.
  void send(std::span<const std::byte> frames);
  // Whether the socket takes something now. If not, tell() is called when it does.
  bool is_writable();
  // Sends as many of these frames, each of `parts_each` parts, as the socket takes by
  // one call, but at least one. Returns how many. They must have their numbers, from
  // next_number() on. Parts of `least_lent` bytes or more are lent, see is_lent().
  std::size_t send_some(std::span<iovec> parts, std::size_t parts_each,
                        std::size_t least_lent = kNothingLent);
  // Drops bytes that the peer's host has confirmed. Returns how many are left.
  std::size_t drop_confirmed();
  // tell() is called when the socket takes something again.
  void await_room() { is_room_awaited_ = true; }

  std::mutex& write_mutex() { return write_mutex_; }
  // The rest of a body that comes just now goes nowhere, if `is_meant`.
  template <class IsMeant>
  void lose_landing(const IsMeant& is_meant) {
    const std::lock_guard lock(read_mutex_);
    if (is_meant()) reader_.lose_landing();
  }
  // The channel of the frame that comes just now; null: none. Within `is_meant` only.
  const Channel* coming_channel() const { return reader_.channel(); }

 private:
  std::uint64_t say_beat();
  bool read_locked();
  // Whether the peer has the socket, or at least reads from it.
  bool is_heard() const {
    return received_.load(std::memory_order_relaxed) != silent_until_;
  }
  void keep();
  bool flush_locked();

  // How many bytes are written before the kernel is asked again how many were
  // confirmed.
  static constexpr std::size_t kConfirmBytes = std::size_t{64} << 10;

  StreamOwner& owner_;
  const ProcessName peer_;
  std::atomic<State> state_ = State::Idle;
  std::atomic<bool> is_attended_ = false;
  std::atomic<bool> is_left_to_others_ = false;
  std::atomic<int> fd_ = -1;
  std::atomic<std::uint64_t> drives_ = 0;

  mutable std::mutex reason_mutex_;  // guards what follows
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
  ReplayBuffer replay_;
  std::uint64_t sent_ = 0;  // bytes, over this socket and those before it
  std::size_t confirm_at_ = kConfirmBytes;
  // As long as no more than this was received, the peer may not have begun to read from
  // the socket, and what its kernel confirms may still be lost.
  std::uint64_t silent_until_ = 0;
  std::atomic<bool> has_kept_ = false;  // whether there is something to send
  std::atomic<bool> is_arrival_awaited_ = false;
  bool is_room_awaited_ = false;

  // Used by the port's thread only.
  std::uint64_t received_before_ = 0;
  std::uint64_t written_before_ = 0;
  unsigned silent_beats_ = 0;
  std::uint64_t num_sockets_ = 0;
  std::uint64_t num_known_there_ = 0;  // without the last one
};

}  // namespace allhands
