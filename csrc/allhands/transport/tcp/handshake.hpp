// How two processes of a job meet on a fresh socket: both prove that they know the
// job's secret before a byte of data passes. One side of one socket, never waiting.
//
//   dialer -> listener   Hello: magic, version, who it is, whom it wants, nonce
//   listener -> dialer   Hello: the same, the other way round
//   dialer -> listener   HMAC-SHA256(secret, "dialer" + both hellos)      32 bytes
//   listener -> dialer   verdict, HMAC-SHA256(secret, "listener" + both)  36 bytes
//   both                 a Ready frame: the connection is made once the other's came
//
// The dialer proves first: a stranger learns a nonce and a name, no more. Nonces are
// fresh, so a recorded proof is worth nothing, and as both names are part of what is
// proved, none can be passed on to another process. What follows is neither encrypted
// nor signed: this keeps strangers out, it does not hide data from who can read the
// network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "allhands/net/unforked_fd.hpp"

namespace allhands {

// A process, as connections know it: where it listens, and which one that is.
using ProcessName = std::string;

// One side of the opening of a connection.
class Handshake {
 public:
  // What has become of it.
  enum class State {
    Going,     // more is to come over the socket
    Asks,      // listener: peer() has proved itself; answer(verdict) is to be called
    Done,      // the connection is made; socket() has nothing of the handshake left
    Busy,      // dialer: the peer dials this process itself
    Unwanted,  // dialer: another process listens there now
    Failed,    // closed, or no handshake of ours
  };

  static constexpr std::size_t kMaxName = 1024;

  // For the side that has connected, and wants `peer`; says hello.
  static Handshake dial(UnforkedFd socket, std::string_view secret,
                        const ProcessName& self, const ProcessName& peer);
  // For the side that has accepted.
  static Handshake listen(UnforkedFd socket, std::string_view secret,
                          const ProcessName& self);

  // Takes what has come.
  State advance();
  // Says whether the peer that asks has got its connection.
  State answer(bool is_accepted);

  State state() const { return state_; }
  const ProcessName& peer() const { return peer_; }
  int fd() const { return socket_.get(); }
  UnforkedFd take_socket() { return std::move(socket_); }
  // Why it has failed.
  const std::string& problem() const { return problem_; }

 private:
  enum class Step { HelloHead, HelloNames, Proof, Verdict, Ready };

  Handshake(UnforkedFd socket, std::string_view secret, const ProcessName& self,
            bool is_dialer);

  void say_hello();
  void send(std::string_view bytes);
  bool receive();
  void expect(Step step, std::size_t bytes);
  void handle();
  void handle_hello_head();
  void handle_hello_names();
  void handle_proof();
  void handle_verdict();
  void handle_ready();
  std::string prove(bool as_dialer) const;
  void fail(const std::string& problem);

  UnforkedFd socket_;
  std::string secret_;
  ProcessName self_;
  ProcessName peer_;
  bool is_dialer_;
  State state_ = State::Going;
  Step step_ = Step::HelloHead;
  std::size_t expected_ = 0;
  std::string received_;
  std::string mine_;    // hello
  std::string theirs_;  // hello
  std::string problem_;
};

}  // namespace allhands
