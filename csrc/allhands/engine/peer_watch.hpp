// Which peers are gone, and why: from what they said of themselves, and from whether
// they still run. Checking the latter takes microseconds, so it is not done for every
// message.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "allhands/base/error.hpp"
#include "allhands/host/membership.hpp"
#include "allhands/transport/transport.hpp"

namespace allhands {

// Knows which peers are gone. Thread-safe.
class PeerWatch {
 public:
  // Why a rank has aborted the group, if it said so.
  using Failure = std::function<std::optional<Error>()>;

  PeerWatch(Transport& transport, const Membership& members, Failure failure)
      : transport_(transport), members_(members), failure_(std::move(failure)) {}

  // Whether the peer left the group or died.
  bool is_gone(int peer) const {
    return transport_.presence(peer) != Presence::Here || !transport_.is_alive(peer);
  }
  // The same, as it was a moment ago.
  bool was_gone_lately(int peer) const {
    return transport_.presence(peer) != Presence::Here ||
           !transport_.was_alive_lately(peer);
  }
  // The ranks that died or aborted the group, as it was a moment ago, each with what it
  // told; a rank that died told nothing.
  std::vector<std::pair<int, std::string>> endings() const;
  // More about how the peer's end was found out; may be empty.
  std::string end_of(int peer) const { return transport_.end_of(peer); }
  // Whether every other rank was gone lately.
  bool is_alone() const;

  // What an abort by `peer` means for this rank; none if the peer has not aborted the
  // group.
  std::optional<Error> abortion(int peer) const;
  // The same for any peer, or for what else broke the group.
  std::optional<Error> abortion() const;
  // What broke the group.
  std::optional<Error> failure() const { return failure_(); }

 private:
  Transport& transport_;
  const Membership& members_;
  const Failure failure_;
};

}  // namespace allhands
