// The store's server: one thread that serves all clients through epoll and never waits
// for a single one. Its destructor closes every connection and ends the thread.
//
// A child of fork() that destroys its copy leaves the parent's server alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "allhands/base/fd.hpp"
#include "allhands/store/loop_thread.hpp"

namespace allhands::store {

// Serves a store, in a thread of its own.
class Server {
 public:
  // Serves at once. `listeners` listen on one port; `secret` may be empty. A stranger
  // must finish the handshake within `handshake_limit`.
  Server(std::vector<Fd> listeners, std::string secret,
         std::chrono::milliseconds handshake_limit = kHandshakeLimit);

  std::uint16_t port() const { return port_; }
  // What was counted so far. May be called from any thread.
  Traffic traffic() const { return thread_.traffic(); }

 private:
  class Reception;

  std::uint16_t port_;
  LoopThread thread_;
};

}  // namespace allhands::store
