// One rank's end of all messages of a group: the posted transfers, the messages that
// have come, and the matching of both. Each call does what can be done now; an endpoint
// has no threads and never waits. Not thread-safe: the ProgressEngine's lock guards it,
// except for has_part().
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "allhands/base/error.hpp"
#include "allhands/engine/inbox.hpp"
#include "allhands/engine/matching.hpp"
#include "allhands/engine/message.hpp"
#include "allhands/engine/outbox.hpp"
#include "allhands/engine/peer_watch.hpp"
#include "allhands/engine/transfer.hpp"
#include "allhands/host/membership.hpp"
#include "allhands/host/tuning.hpp"
#include "allhands/transport/transport.hpp"

namespace allhands {

class Endpoint {
 public:
  Endpoint(Transport& transport, const Membership& members, const Tuning& tuning,
           const PeerWatch& watch);

  // Writes the whole message now. Returns false if it cannot; then nothing has
  // happened.
  bool send_at_once(const Buffer& buffer, int to, Tag tag);
  // Copies the next record of `from` to `buffer`, if it is the message for that buffer
  // and no other one waits to be matched. Otherwise returns false, and nothing has
  // happened.
  bool recv_at_once(const Buffer& buffer, int from, Tag tag);

  // All sends must go to the same peer.
  void post_sends(std::span<const TransferPtr> sends, Ended& ended);
  // A probe first looks at everything that has come.
  void post_recv(const TransferPtr& receive, Ended& ended);
  // Whether a send of this rank to itself has a matching receive, or a receive a send.
  bool has_counterpart(const Transfer& to_itself, Ended& ended);

  // Reads what peers have written, writes what there is room for, and copies a part of
  // each single copy. Returns true if something moved. Throws LinkError, as other
  // functions that do this; the transfers that it has ended stay ended then.
  bool progress(Ended& ended);
  bool progress(int peer, Ended& ended);
  // Any thread: whether there are parts for this rank to copy.
  bool has_part() const { return num_copying_.load(std::memory_order_relaxed) != 0; }

  // Removes a transfer from wherever it is and ends it. Does nothing if it has just
  // ended.
  void withdraw(const TransferPtr& transfer, const Error& error, Ended& ended);
  // Ends all transfers that have not ended.
  void end_all(const Error& reason, Ended& ended);
  std::vector<TransferPtr> pending() const;
  bool has_sends() const;
  // Ends the sends to `peer`, or to kAnySource, that were written and wait only for the
  // link, if it can do without their arrays by copying.
  void end_lent(int peer, Ended& ended);

  // Peers with which something was exchanged.
  const std::vector<int>& open() const { return open_; }

  // Whether `peer` can still get everything once this rank is gone.
  bool is_safe_to_leave(int peer) const;
  // Whether messages that left early have not been received by `peer`, as far as it has
  // told.
  // A message that it has refused does not count, as this rank was told of that.
  bool has_unreceived(int peer) const;
  // Throws the error of such a message that `peer` refused, once for each.
  void throw_refusal(int peer);

 private:
  struct Channel {
    Channel(Link& link, const Tuning& tuning)
        : link(link), outbox(link, tuning), inbox(link, outbox) {}

    Link& link;
    Outbox outbox;
    Inbox inbox;
    bool is_copying = false;  // counted in num_copying_
    bool is_broken = false;   // the channel has thrown a LinkError
    // The peer has refused a message; it may leave without the next.
    bool has_refused = false;
    // The numbers of messages of collectives to the peer and from it. Both sides post
    // them in the same order.
    std::uint64_t num_sent = 0;
    std::uint64_t num_awaited = 0;
    // The error of an eager message that the peer refused after its send had returned.
    std::optional<Error> refusal;
  };

  Channel& channel(int peer);
  Channel* find(int peer) const {
    return channels_[static_cast<std::size_t>(peer)].get();
  }
  bool pull(int source, Ended& ended);
  bool push_and_copy(int to, Channel& peer, Ended& ended);
  bool move(Channel& peer, Ended& ended);
  [[noreturn]] void throw_broken(int peer, const LinkError& error);
  void handle(int source, std::span<const std::byte> record, Ended& ended);
  void meet(int source, const Message& message, std::span<const std::byte> record,
            const Landed& landed, Ended& ended);
  void start(int source, const Message& message, std::span<const std::byte> record,
             const Landed& landed, TransferPtr receive, Ended& ended);
  void stream(int source, const Message& message, std::span<const std::byte> record,
              TransferPtr receive, Ended& ended);
  [[noreturn]] void end_and_throw(TransferPtr receive, const char* what, Ended& ended);
  void post_probe(const TransferPtr& probe, Ended& ended);
  void expect(Transfer& receive);
  void forget(const Transfer& receive);
  void handle_refusal(int source, const Message& message, Ended& ended);
  void handle_cancel(int source, const Message& message, Ended& ended);

  Transport& transport_;
  const Membership& members_;
  const Tuning& tuning_;
  const PeerWatch& watch_;
  // By peer; null before first use.
  std::vector<std::unique_ptr<Channel>> channels_;
  std::vector<int> open_;  // peers whose channel is not null
  std::atomic<int> num_copying_ = 0;
  Matching matching_;
  std::uint32_t next_id_ = 1;
};

}  // namespace allhands
