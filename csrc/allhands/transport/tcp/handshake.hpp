// How two processes of a job meet on a fresh socket: both prove that they know the
// job's secret before a byte of data passes. One side of one socket, never waiting.
//
//   dialer -> listener   Hello: magic, version, who it is, whom it wants, how many
//                        sockets their connection has had, nonce
//   listener -> dialer   Hello: the same, the other way round, without the number
//   dialer -> listener   HMAC-SHA256(secret, "dialer" + both hellos)      32 bytes
//   listener -> dialer   verdict, HMAC-SHA256(secret, "listener" + both)  36 bytes
//   both                 a Ready frame: how much of what the other wrote was received
//                        over the sockets before; the connection is made, or goes on
//                        from there, once the other's came
//   encrypted: both      after the Ready frames a TLS handshake, with a key made of the
//                        secret and both hellos. The listener is TLS's client, so that
//                        it reads already when the dialer is done, as without TLS
//
// A side that proves itself uses the sockets before no more, and each counts what it
// received only once the other has stopped so: the dialer when it has the verdict, the
// listener when it has the proof.
//
// The dialer proves first: a stranger learns a nonce and a name, no more. Nonces are
// fresh, so a recorded proof is worth nothing, and as both names are part of what is
// proved, none can be passed on to another process. Where connections are not
// encrypted, what follows is not signed either: then this keeps strangers out, and does
// not hide data from who can read the network.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "allhands/net/unforked_fd.hpp"
#include "allhands/transport/tcp/wire.hpp"

namespace allhands {

// A process, as connections know it: where it listens, and which one that is.
using ProcessName = std::string;

// What the processes of a job have in common.
struct Credentials {
  std::string secret;
  bool is_encrypted = false;  // connections by TLS, with all peers
};

// One side of the opening of a connection.
class Handshake {
 public:
  // What has become of it.
  enum class State {
    Going,  // more is to come over the socket
    Asks,   // listener: peer() has proved itself; accept() or refuse() is to be called
    Accepted,  // dialer: take_up() is to be called
    Done,      // the connection is made; take_wire() has nothing of the handshake left
    Busy,      // dialer: the peer dials this process itself, or has a newer socket
    GivenUp,   // dialer: the peer counts this process as dead
    Unwanted,  // dialer: another process listens there now
    Failed,    // closed, or no handshake of ours
  };

  enum class Refusal : std::uint32_t { Busy = 2, GivenUp = 3 };

  // What it may take.
  static constexpr std::chrono::seconds kLimit{5};
  static constexpr std::size_t kMaxName = 1024;

  // For the side that has connected, and wants `peer`; says hello. `num_sockets`: which
  // their connection has had before, as far as this side knows.
  static Handshake dial(UnforkedFd socket, const Credentials& credentials,
                        const ProcessName& self, const ProcessName& peer,
                        std::uint64_t num_sockets = 0);
  // For the side that has accepted.
  static Handshake listen(UnforkedFd socket, const Credentials& credentials,
                          const ProcessName& self);

  // Takes what has come.
  State advance();
  // Of the peer that asks: it gets its connection, whose socket is this one's
  // `number`th. `received`: bytes over the sockets before.
  State accept(std::uint64_t number, std::uint64_t received);
  // It does not.
  State refuse(Refusal why);
  // Dialer: the same as of the listener, who has accepted.
  State take_up(std::uint64_t received);

  State state() const { return state_; }
  bool is_dialer() const { return is_dialer_; }
  const ProcessName& peer() const { return peer_; }
  // Asks: sockets that the dialer knows of. Done: which one of them this is.
  std::uint64_t number() const { return number_; }
  // Done: bytes that the peer has received over the sockets before.
  std::uint64_t received_there() const { return received_there_; }
  int fd() const { return socket_.get(); }
  // Done: what the connection goes over from now on.
  Wire take_wire() { return Wire(std::move(socket_), std::move(tls_)); }
  // Why it has failed.
  const std::string& problem() const { return problem_; }

 private:
  enum class Step { HelloHead, HelloNames, Proof, Verdict, Ready, Tls };

  Handshake(UnforkedFd socket, const Credentials& credentials, const ProcessName& self,
            bool is_dialer);

  void say_hello();
  void say_ready();
  void say_verdict(std::uint32_t verdict);
  void send(std::string_view bytes);
  bool receive();
  void expect(Step step, std::size_t bytes);
  void handle();
  void handle_hello_head();
  void handle_hello_names();
  void handle_proof();
  void handle_verdict();
  void handle_ready();
  void begin_tls();
  void advance_tls();
  std::string digest_of_hellos(std::string_view purpose) const;
  std::string prove(bool as_dialer) const;
  void fail(const std::string& problem);

  UnforkedFd socket_;
  Credentials credentials_;
  bool is_encrypted_there_ = false;
  ProcessName self_;
  ProcessName peer_;
  bool is_dialer_;
  State state_ = State::Going;
  Step step_ = Step::HelloHead;
  std::size_t expected_ = 0;
  std::string came_;    // of the step
  std::string mine_;    // hello
  std::string theirs_;  // hello
  std::string problem_;
  std::unique_ptr<TlsSession> tls_;
  std::uint64_t number_ = 0;
  std::uint64_t received_ = 0;
  std::uint64_t received_there_ = 0;
};

}  // namespace allhands
