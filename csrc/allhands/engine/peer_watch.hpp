// Which peers are gone, and why: what they said of themselves, and whether they still
// run. Reading the latter takes microseconds, so it is not done for every message.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "allhands/base/deadline.hpp"
#include "allhands/base/error.hpp"
#include "allhands/host/membership.hpp"
#include "allhands/transport/transport.hpp"

namespace allhands {

// Knows which peers are gone. Thread-safe, but for was_gone_lately(): the
// ProgressEngine's lock guards that.
class PeerWatch {
 public:
  // Why a rank has aborted the group, if it said so.
  using Failure = std::function<std::optional<Error>()>;

  PeerWatch(const Transport& transport, const Membership& members, Failure failure)
      : transport_(transport),
        members_(members),
        failure_(std::move(failure)),
        looks_(static_cast<std::size_t>(members.size())) {}

  // It left the group, or died.
  bool is_gone(int peer) const {
    return transport_.presence(peer) != Presence::Here || !transport_.is_alive(peer);
  }
  // The same, as of 100 ms ago at the most.
  bool was_gone_lately(int peer);
  std::vector<int> gone() const;

  // What an abort by `peer` means for this rank; none: it has not aborted the group.
  std::optional<Error> abortion(int peer) const;
  // The same of any peer, or of what else broke the group.
  std::optional<Error> abortion() const;
  // What broke the group.
  std::optional<Error> failure() const { return failure_(); }

 private:
  struct Look {
    bool is_gone = false;
    Deadline::Clock::time_point at{};
  };

  const Transport& transport_;
  const Membership& members_;
  const Failure failure_;
  std::vector<Look> looks_;
};

}  // namespace allhands
