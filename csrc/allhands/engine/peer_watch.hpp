// Which peers are gone, and why: what they said of themselves, and whether they still
// run. Reading the latter takes microseconds, so it is not done for every message.
#pragma once

#include <functional>
#include <optional>
#include <string>

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

  // It left the group, or died.
  bool is_gone(int peer) const {
    return transport_.presence(peer) != Presence::Here || !transport_.is_alive(peer);
  }
  // The same, as of a moment ago.
  bool was_gone_lately(int peer) const {
    return transport_.presence(peer) != Presence::Here ||
           !transport_.was_alive_lately(peer);
  }
  // More of how that was found out; may be empty.
  std::string end_of(int peer) const { return transport_.end_of(peer); }
  // Every rank but this one was.
  bool is_alone() const;

  // What an abort by `peer` means for this rank; none: it has not aborted the group.
  std::optional<Error> abortion(int peer) const;
  // The same of any peer, or of what else broke the group.
  std::optional<Error> abortion() const;
  // What broke the group.
  std::optional<Error> failure() const { return failure_(); }

 private:
  Transport& transport_;
  const Membership& members_;
  const Failure failure_;
};

}  // namespace allhands
