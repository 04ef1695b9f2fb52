// The thread of a TcpPort: it accepts and dials, shakes hands, reads while no other
// thread does, sends what sockets did not take at once, and finds out which peers are
// silent or gone.
//
// While threads of the program read a connection themselves, this thread only checks
// now and then whether they still do.
//
// A broken socket says nothing about the process behind it. Both sides dial the other
// for as long as a host may be silent. If the process no longer listens there, it is
// gone. A peer that was silent for half of that time is dialled too: a host that
// answers is not gone, and the connection goes on over the new socket.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "allhands/base/fd.hpp"
#include "allhands/net/poller.hpp"
#include "allhands/net/unforked_fd.hpp"
#include "allhands/net/wakeup.hpp"
#include "allhands/transport/tcp/dial.hpp"
#include "allhands/transport/tcp/handshake.hpp"
#include "allhands/transport/tcp/stream.hpp"

namespace allhands {

// The thread of a TcpPort.
class PortLoop final : public ConnectionOwner {
 public:
  using Clock = std::chrono::steady_clock;

  // `silence`: a peer is lost if nothing comes from it for this long. `rail`: see Dial.
  // `ucx`: null: bodies go over sockets only.
  PortLoop(std::vector<Fd> listeners, ProcessName self, Clock::duration silence,
           unsigned rail, std::shared_ptr<UcxWorker> ucx);
  ~PortLoop() override;

  // Call once. `say`: see TcpPort. Throws Backend if no thread can be started.
  using Say = std::function<void(const std::string& text)>;
  void start(Credentials credentials, Say say);
  // Gives what was written a moment to leave, and loses all connections. Idempotent.
  void close();

  const ProcessName& self() const { return self_; }
  // The connection to `peer`, which is made on first use.
  std::shared_ptr<Connection> connection(const ProcessName& peer);
  // Any thread: breaks the socket to `peer`, which is then replaced. Returns false if
  // there is none.
  bool break_socket(const ProcessName& peer);
  // This process leaves the group of `channel`, with `saying` as its last words.
  void part(std::uint64_t channel, Saying saying);

  void attend(Stream& stream) override;
  std::optional<Saying> parting(std::uint64_t channel) override;
  std::unique_ptr<Lane> make_lane(Connection& connection,
                                  const std::string& address) override;
  void tell_lane_end(const Connection& connection, const std::string& why) override;

 private:
  // How a stream is being made.
  struct Reaching {
    std::shared_ptr<Stream> stream;
    std::optional<Dial> dial;  // this process's attempts
    int dialing = -1;          // socket of the attempt under way
    int answering = -1;        // socket of the peer's attempt, which was accepted
    // Whether this process was stopped when the last socket broke.
    bool was_stopped = false;
  };
  struct Shaking {
    Handshake handshake;
    Clock::time_point end;
    std::shared_ptr<Stream> stream;  // null: the peer is not known yet
  };
  struct Connecting {
    UnforkedFd socket;
    std::shared_ptr<Stream> stream;
  };
  struct Open {
    std::shared_ptr<Stream> stream;
    std::uint64_t drives = 0;  // as last seen
    bool is_resting = false;   // other threads read the stream
    bool is_closing = false;
  };

  void run();
  // Returns whether this process was stopped.
  bool note_own_stop();
  void forget_silence();
  void serve(const Readiness& ready);
  std::chrono::nanoseconds time_to_next_chore() const;
  void do_chores();

  void accept_peers(int listener);
  void make_room();
  void pause_accepting();
  void welcome(UnforkedFd socket);

  void attend_waiting();
  Reaching& reaching(const std::shared_ptr<Stream>& stream);
  void dial_due();
  void begin_dial(Reaching& reaching);
  void renew(Reaching& reaching);
  void on_connected(int fd);
  void fail_dial(Reaching& reaching, std::string problem, bool is_gone);
  void drop_attempt(Reaching& reaching);
  void drop_answering(Reaching& reaching);
  void end_reaching(Stream& stream);
  unsigned rail_of(const Stream& stream) const;
  Clock::time_point handshake_end(const Reaching& reaching) const;

  void shake(int fd);
  void admit(int fd, Shaking& shaking);
  bool is_acceptable(Stream& from, std::uint64_t num_sockets) const;
  void drop(std::shared_ptr<Stream> stream, const std::string& reason);
  void let_go(Connection& connection);
  void take_own_end(std::shared_ptr<Stream> stream, const std::string& why);
  void end_shaking(int fd, std::string problem);
  void end_slow();
  void open(Shaking& shaking);

  void read(int fd, Open& open);
  void watch(int fd, const Open& open);
  void look_at_resting();
  void end_rest(int fd, Open& open);
  void tend_lane(Connection& connection);
  void tend_ucx();
  void watch_ucx(bool is_watched);
  void beat();
  bool is_lively_beside(Stream& stream) const;
  void suspect(const std::shared_ptr<Stream>& stream);
  void stop_watching(int fd);
  void break_off(int fd, const std::string& reason);
  void lose(int fd, const std::string& reason);
  std::string silence_text() const;
  void wind_up();
  bool has_more_to_tell() const;
  void lose_all(const std::string& reason);

  const ProcessName self_;
  const Clock::duration silence_;
  const unsigned rail_;
  const Clock::duration beat_every_;
  // Numbers of beats in a row in which nothing came.
  const unsigned most_beats_;
  const unsigned suspicious_beats_;
  const std::shared_ptr<UcxWorker> ucx_;  // may be null
  std::vector<UnforkedFd> listeners_;
  Credentials credentials_;
  Say say_;  // tells people what happens; may be null
  std::atomic<bool> is_stopping_ = false;
  Wakeup wakeup_;
  std::thread thread_;
  std::mutex closing_mutex_;

  std::mutex mutex_;  // guards what follows
  std::string end_;   // why all connections have ended; empty: they have not
  std::unordered_map<ProcessName, std::shared_ptr<Connection>> connections_;
  std::vector<std::shared_ptr<Stream>> waiting_;  // for attention
  std::unordered_map<std::uint64_t, Saying> partings_;
  std::deque<std::uint64_t> parted_;  // channels of `partings_`, the oldest first

  // Used by the port's thread only.
  Poller poller_;
  std::unordered_map<Stream*, Reaching> reaching_;
  std::unordered_map<int, Connecting> connecting_;
  std::unordered_map<int, Shaking> shaking_;
  std::unordered_map<int, Open> open_;
  // has_arrived() was asked about them.
  std::vector<std::shared_ptr<Stream>> draining_;
  std::size_t num_resting_ = 0;
  bool is_ucx_watched_ = false;
  std::uint64_t ucx_helped_ = 0;  // as last seen
  Clock::time_point ucx_look_;
  bool is_accepting_ = true;
  Clock::time_point accept_again_;
  Clock::time_point next_look_;  // at connections that rest
  Clock::time_point next_beat_;
  Clock::duration stopped_for_{};  // how long this process was stopped the last time
  unsigned beats_since_stop_ = 0;
};

}  // namespace allhands
