// Where a process listens for processes of other hosts, and its connections to them:
// one for each process that it communicates with, made on first use and shared by all
// groups.
//
// A child of fork() must not use its copy; destroying the copy does nothing.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "allhands/host/membership.hpp"
#include "allhands/host/tuning.hpp"
#include "allhands/transport/transport.hpp"

namespace allhands {

class PortLoop;
class UcxWorker;

// Where a process listens for processes of other hosts.
class TcpPort {
 public:
  using Secret = std::array<std::byte, 32>;
  using GroupToken = std::array<std::byte, 32>;
  using Places = std::vector<std::pair<std::string, std::uint16_t>>;

  // Whether large bodies go by UCX: with no peer, with peers that offer it too, or with
  // all peers.
  enum class UcxUse { No, Offered, Needed };

  // How long a peer's host may be silent before its ranks count as dead.
  static constexpr std::chrono::seconds kSilence{5};

  struct Options {
    std::chrono::nanoseconds silence = kSilence;
    // Where others reach this process, if not at its hosts; port 0 there stands for the
    // port that it listens at.
    Places advertised = {};
    // Whether all connections use TLS. The same in all processes.
    bool is_encrypted = false;
    // Which of a peer's addresses is tried first, modulo how many it has.
    unsigned rail = 0;
    // Over how many sockets large bodies go to each peer. The same in all processes.
    unsigned num_sockets = 1;
    UcxUse ucx = UcxUse::No;
  };
  static constexpr unsigned kMostSockets = 16;

  // Listens on each of `hosts`, which are addresses of this machine, at one port of
  // [first, last]; 0, 0: the system picks. Throws Value for wrong arguments, Network if
  // it cannot listen, and Backend if TLS or UCX is wanted and there is no OpenSSL or
  // UCX.
  TcpPort(const std::vector<std::string>& hosts, std::uint16_t first,
          std::uint16_t last, const Options& options);
  TcpPort(const TcpPort&) = delete;
  TcpPort& operator=(const TcpPort&) = delete;
  ~TcpPort();

  // "10.0.0.3:4471" for each host, or as advertised.
  const std::vector<std::string>& endpoints() const { return endpoints_; }
  // Tells people what happens. Must not throw; called from any thread.
  using Say = std::function<void(const std::string& text)>;
  // Call once: from now on, accepts processes that prove that they know the secret.
  void start(const Secret& secret, Say say = nullptr);
  // A group's transport to its ranks on other hosts, in the group's numbering. Its
  // links to ranks of this host are never used. Only the group's ranks know `group`.
  // `on_event` is called for each event, from any thread; it must not throw.
  std::unique_ptr<Transport> join(const Membership& membership, const GroupToken& group,
                                  const Tuning& tuning,
                                  std::function<void()> on_event = {});
  // Breaks the socket to `peer`, as an abort of the connection would; the connection
  // goes on over another socket. Returns false if there is none now. For tests of
  // programs.
  bool break_socket(const ProcessIdentity& peer);
  // How many bodies this process has sent by UCX. For tests of programs.
  std::uint64_t num_sent_by_ucx() const;
  // Gives what was written a second to leave; then all peers count as dead. Idempotent.
  void close();

 private:
  void check_owner() const;

  const pid_t owner_;
  const Options options_;
  std::shared_ptr<UcxWorker> worker_;  // may be null
  std::vector<std::string> endpoints_;
  std::shared_ptr<PortLoop> loop_;
  bool is_started_ = false;
};

}  // namespace allhands
