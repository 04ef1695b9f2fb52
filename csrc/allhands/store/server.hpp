// The store's server: one thread that serves all clients through epoll and never waits
// for a single one. Its destructor closes every connection and ends the thread.
//
// A child of fork() that destroys its copy leaves the parent's server alone.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "allhands/base/fd.hpp"

namespace allhands::store {

// What a server has counted since it began.
struct Traffic {
  std::uint64_t connections;
  std::uint64_t requests;
  std::uint64_t bytes_received;  // with handshakes, without what TCP adds
  std::uint64_t bytes_sent;
};

// Serves a store, in a thread of its own.
class Server {
 public:
  // Serves at once. `listeners` listen on one port; `secret` may be empty. A stranger
  // must finish the handshake within `handshake_limit`.
  Server(std::vector<Fd> listeners, std::string secret,
         std::chrono::milliseconds handshake_limit = std::chrono::seconds(10));
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::uint16_t port() const { return port_; }
  // What was counted so far. May be called from any thread.
  Traffic traffic() const;

 private:
  class Loop;

  std::uint16_t port_;
  pid_t owner_;
  std::unique_ptr<Loop> loop_;
  std::unique_ptr<std::thread> thread_;
};

}  // namespace allhands::store
