// A relay: serves the processes of a host like a store's server, and asks the server
// for them over one connection. It keeps no data. Clients notice no difference: it has
// the server's secret and identity, and a request that waits is parked at the server.
// If a client goes, the server hears it at once. If the server goes, so does the relay.
//
// The connection carries one message after another. So a large value holds up the other
// clients of the host while it passes.
//
// A child of fork() that destroys its copy leaves the parent's relay alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "allhands/base/fd.hpp"
#include "allhands/store/link.hpp"
#include "allhands/store/loop_thread.hpp"

namespace allhands::store {

// Serves the clients of a host, in a thread of its own.
class Relay {
 public:
  // Serves at once, with the secret of `server`. `listeners` listen on one port.
  // `to_server` is connected.
  Relay(std::vector<Fd> listeners, const Target& server, Link to_server,
        std::chrono::milliseconds handshake_limit = kHandshakeLimit);

  std::uint16_t port() const { return port_; }
  // This process's address on the way to the server.
  const std::string& own_address() const { return own_address_; }
  // What its clients have sent and received. May be called from any thread.
  Traffic traffic() const { return thread_.traffic(); }

 private:
  class Forwarder;

  std::uint16_t port_;
  std::string own_address_;
  LoopThread thread_;
};

}  // namespace allhands::store
