// How two processes of a job open a connection on a fresh socket: both prove that they
// know the job's secret before any data passes. An object is one side of one socket,
// and never waits.
//
//   dialer -> listener   Hello: magic, version, who it is, whom it wants, for which
//                        stream, how many sockets that has had, nonce
//   listener -> dialer   Hello: the same, the other way round, without these numbers
//   dialer -> listener   HMAC-SHA256(secret, "dialer" + both hellos)      32 bytes
//   listener -> dialer   verdict, HMAC-SHA256(secret, "listener" + both)  36 bytes
//   both                 a Ready frame: how much of what the other wrote was received
//                        over the sockets before; the connection is made, or goes on
//                        from there, once the other's came. If both offer UCX, the
//                        address of this side's worker follows
//   encrypted: both      after the Ready frames a TLS handshake, with a key made of the
//                        secret and both hellos. The listener is TLS's client, so that
//                        it reads already when the dialer is done, as without TLS
//
// A side that has proved itself no longer uses earlier sockets. Each side counts what
// it received only once the other has stopped in this way: the dialer when it has the
// verdict, the listener when it has the proof.
//
// The dialer proves itself first, so a stranger learns only a nonce and a name. Nonces
// are fresh, so a recorded proof is worthless, and both names are part of a proof, so
// it cannot be passed on to another process. Without encryption the data that follows
// is not signed either: the handshake then keeps strangers out, but does not hide data
// from somebody who can read the network.
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

// The name of a process in connections: where it listens, and which process that is.
using ProcessName = std::string;

// What the processes of a job have in common.
struct Credentials {
  std::string secret;
  bool is_encrypted = false;  // whether connections with all peers use TLS
  std::string ucx = {};       // the address of this process's UCX worker, if it has one
  bool needs_ucx = false;     // whether all peers must have UCX
  unsigned num_strands = 0;   // of each connection
};

// One side of the opening of a connection.
class Handshake {
 public:
  // The state of the handshake.
  enum class State {
    Going,     // more is to come over the socket
    Asks,      // listener: peer() has proved itself; call accept() or refuse()
    Accepted,  // dialer: call take_up()
    Done,      // the connection is made; nothing of the handshake is left to read
    Busy,      // dialer: the peer dials this process itself, or has a newer socket
    GivenUp,   // dialer: the peer counts this process as dead
    Unwanted,  // dialer: another process listens there now
    Failed,    // the socket was closed, or the other side is no process of ours
  };

  enum class Refusal : std::uint32_t { Busy = 2, GivenUp = 3 };

  // The limits of a handshake.
  static constexpr std::chrono::seconds kLimit{5};
  static constexpr std::size_t kMaxName = 1024;
  static constexpr std::size_t kMaxUcxAddress = std::size_t{16} << 10;

  // For the side that has connected and wants `peer`; says hello. `num_sockets`: the
  // number of sockets that their stream has had before, as far as this side knows.
  // `strand`: see Stream.
  static Handshake dial(UnforkedFd socket, const Credentials& credentials,
                        const ProcessName& self, const ProcessName& peer,
                        std::uint64_t num_sockets = 0, unsigned strand = 0);
  // For the side that has accepted.
  static Handshake listen(UnforkedFd socket, const Credentials& credentials,
                          const ProcessName& self);

  // Handles what has come.
  State advance();
  // Grants the asking peer its connection, of which this is socket `number`.
  // `received`: the bytes received over the sockets before.
  State accept(std::uint64_t number, std::uint64_t received);
  // Refuses it.
  State refuse(Refusal why);
  // Dialer: does the same once the listener has accepted.
  State take_up(std::uint64_t received);

  State state() const { return state_; }
  bool is_dialer() const { return is_dialer_; }
  const ProcessName& peer() const { return peer_; }
  // Asks: the stream that the socket is for, no more than there are strands.
  unsigned strand() const { return strand_; }
  // Asks: the number of sockets that the dialer knows of. Done: the number of this one.
  std::uint64_t number() const { return number_; }
  // Done: the bytes that the peer has received over the sockets before.
  std::uint64_t received_there() const { return received_there_; }
  // Done: the address of the peer's UCX worker; empty: it does not use UCX with this
  // process.
  const std::string& ucx_there() const { return ucx_there_; }
  int fd() const { return socket_.get(); }
  // Done: takes the wire that the connection uses from now on.
  Wire take_wire() { return Wire(std::move(socket_), std::move(tls_)); }
  // Why the handshake has failed.
  const std::string& problem() const { return problem_; }

 private:
  enum class Step { HelloHead, HelloNames, Proof, Verdict, Ready, Ucx, Tls };

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
  void end_plain();
  void begin_tls();
  bool has_ucx() const { return offers_ucx_there_ && !credentials_.ucx.empty(); }
  std::string difference() const;
  void advance_tls();
  std::string digest_of_hellos(std::string_view purpose) const;
  std::string prove(bool as_dialer) const;
  void fail(const std::string& problem);

  UnforkedFd socket_;
  Credentials credentials_;
  bool is_encrypted_there_ = false;
  bool offers_ucx_there_ = false;
  bool needs_ucx_there_ = false;
  ProcessName self_;
  ProcessName peer_;
  bool is_dialer_;
  State state_ = State::Going;
  Step step_ = Step::HelloHead;
  std::size_t expected_ = 0;
  std::string came_;    // what came in this step
  std::string mine_;    // hello
  std::string theirs_;  // hello
  std::string problem_;
  std::string ucx_there_;
  std::unique_ptr<TlsSession> tls_;
  unsigned strand_ = 0;
  unsigned num_strands_there_ = 0;
  std::uint64_t number_ = 0;
  std::uint64_t received_ = 0;
  std::uint64_t received_there_ = 0;
};

}  // namespace allhands
