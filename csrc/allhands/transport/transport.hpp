// What carries records between the ranks of a group: a Link to each peer, events that
// tell when to look at them again, and whether peers are still there.
//
// Implementations: transport/shm, for the ranks of one host, and transport/tcp, for
// those of several. In transport/tcp a connection takes the place of the rings, and its
// end counts as the end of the peer.
//
// Thread-safe, except for ready() and for links (see Link).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "allhands/base/error.hpp"
#include "allhands/host/placement.hpp"
#include "allhands/transport/link.hpp"

namespace allhands {

// What a rank says of itself.
enum class Presence : std::uint32_t { Here, Left, Aborted };

// Links to all peers, and the events that say when to look at them.
class Transport {
 public:
  virtual ~Transport() = default;

  // The link to `peer`, which may be this rank itself.
  virtual Link& link(int peer) = 0;
  // The peers that may have written records since the last call. Call it under the lock
  // of the links.
  virtual std::span<const int> ready() = 0;

  // The number of events that may matter to this rank so far: records and room in its
  // links, peers that came or left, wake_self().
  virtual std::uint32_t num_events() = 0;
  // Returns when the number of events differs from `seen`, after `limit`, or
  // spuriously.
  virtual void sleep(std::uint32_t seen, std::chrono::nanoseconds limit) = 0;
  // Call when the caller, which has watched the links awake, is about to sleep on
  // another transport.
  virtual void stop_looking() {}
  // Makes an event for this rank's own threads.
  virtual void wake_self() = 0;
  // Where the ranks that share this rank's CPUs run; null if that is not known.
  virtual Placement* placement() { return nullptr; }

  // The last presence that `peer` has announced; costs next to nothing.
  virtual Presence presence(int peer) const = 0;
  // Whether `peer` still runs, though it may have left. May take a system call.
  virtual bool is_alive(int peer) const = 0;
  // The same, as of a moment ago: for callers that ask again and again while they wait.
  virtual bool was_alive_lately(int peer) { return is_alive(peer); }
  // Whether the peer joined, and ended without leaving, as it was a moment ago.
  virtual bool has_died(int peer) {
    return presence(peer) == Presence::Here && !was_alive_lately(peer);
  }
  // How this rank found out that `peer` no longer runs, if there is more to say.
  virtual std::string end_of(int) const { return {}; }
  // Whether some rank has announced Aborted; costs next to nothing.
  virtual bool has_aborted() const = 0;
  // Why `peer` has aborted, if the transport carries the reason.
  virtual std::optional<Error> abort_reason(int) const { return std::nullopt; }
  // Tells the peers that this rank leaves, or aborts for the reason `why`.
  virtual void leave(Presence how, const Error& why) = 0;
};

}  // namespace allhands
