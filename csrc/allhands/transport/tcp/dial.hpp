// How a process is reached: its addresses are tried in turn, again and again, until it
// answers or is known to be gone. Nothing here waits.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "allhands/base/fd.hpp"
#include "allhands/net/address.hpp"
#include "allhands/transport/tcp/handshake.hpp"

namespace allhands {

// The name of a process that listens at `endpoints`, as ProcessIdentity has them.
ProcessName name_of(const std::string& endpoints, int pid, std::uint64_t start);

// The attempts to reach one process.
class Dial {
 public:
  using Clock = std::chrono::steady_clock;

  // `peer` is tried for `limit`, first at address number `rail`, modulo how many it
  // has.
  Dial(const ProcessName& peer, Clock::duration limit, unsigned rail = 0);

  // Begins an attempt at the next address. Returns a socket that connects, or none if
  // the attempt has failed already.
  Fd begin();
  // Notes that the attempt has failed. `is_gone`: no process of that name is there.
  void fail(const std::string& problem, bool is_gone);
  // Gives the attempts their whole time again, also the one that is under way.
  void renew();
  // Pauses the attempts, as the peer dials this process itself.
  void give_way();

  // When to begin the next attempt.
  Clock::time_point next() const { return next_; }
  // When the attempt under way must be connected.
  Clock::time_point attempt_end() const { return attempt_end_; }
  // When the last attempt must have ended.
  Clock::time_point end() const { return end_; }
  // Whether further attempts are pointless.
  bool is_over() const;
  // "it cannot be reached at 10.0.0.3:4471: Connection refused"
  std::string problem() const;

 private:
  Clock::time_point end_of_attempt() const;

  std::vector<Address> addresses_;
  const std::string endpoints_;
  std::size_t at_ = 0;        // the next address
  std::size_t num_gone_ = 0;  // addresses in a row at which the process is gone
  const Clock::duration limit_;
  Clock::time_point next_;
  Clock::time_point attempt_end_;
  Clock::time_point end_;
  std::string problem_ = "it does not answer";
};

}  // namespace allhands
