// A server of a store, with a relay before it if asked for, and clients of it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "allhands/base/error.hpp"
#include "allhands/net/listener.hpp"
#include "allhands/store/client.hpp"
#include "allhands/store/relay.hpp"
#include "allhands/store/server.hpp"
#include "check.hpp"

namespace allhands::store {

using std::chrono::milliseconds;
using testing::run_ranks;

inline Deadline soon() { return Deadline::after(std::chrono::seconds(600)); }  // a hang
inline Deadline in(int count) { return Deadline::after(milliseconds(count)); }

// Whether there is a relay before each server that serve() makes.
inline bool is_relayed = false;

class Served {
 public:
  Served(const std::string& secret, const std::string& host, std::uint16_t port)
      : server_(std::make_unique<Server>(listen_on(host, port, {soon()}), secret)) {
    if (is_relayed) relay_ = relay(secret);
  }

  std::uint16_t port() const { return relay_ ? relay_->port() : server_->port(); }
  Traffic traffic() const { return server_->traffic(); }
  void end_server() { server_.reset(); }
  // One more relay to the same server.
  std::unique_ptr<Relay> relay(const std::string& secret = "") const {
    const Target target = {"127.0.0.1", server_->port(), secret};
    Link link(target, soon());
    return std::make_unique<Relay>(listen_on("127.0.0.1", 0, {soon()}), target,
                                   std::move(link));
  }

 private:
  std::unique_ptr<Server> server_;
  std::unique_ptr<Relay> relay_;
};

inline std::unique_ptr<Served> serve(const std::string& secret = "",
                                     const std::string& host = "127.0.0.1",
                                     std::uint16_t port = 0) {
  return std::make_unique<Served>(secret, host, port);
}

inline std::unique_ptr<Client> connect(std::uint16_t port,
                                       const std::string& secret = "",
                                       const std::string& host = "127.0.0.1",
                                       Deadline deadline = soon(),
                                       Interrupt interrupt = nullptr) {
  return std::make_unique<Client>(Target{host, port, secret, interrupt}, deadline);
}

inline std::unique_ptr<Client> connect(const Relay& relay) {
  return connect(relay.port());
}

// What interrupts a wait, and whether it does.
inline std::atomic<bool> wants_out = false;
inline bool is_interrupted() { return wants_out; }

// The message of the error of this kind that `call` must raise.
template <typename Call>
std::string message_of(ErrorKind kind, const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    if (error.kind() != kind) std::fprintf(stderr, "other kind: %s\n", error.what());
    CHECK(error.kind() == kind);
    return error.what();
  }
  CHECK(!"an error was raised");
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return true;
  std::fprintf(stderr, "'%s' lacks '%s'\n", text.c_str(), part.c_str());
  return false;
}

}  // namespace allhands::store
