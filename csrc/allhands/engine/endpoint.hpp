// One rank's end of all messages of a group: what was posted, what has come, and how
// the two meet. Each call does what can be done now: it has no threads and never waits.
// Not thread-safe: the ProgressEngine's lock guards it, but for has_part().
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
#include "allhands/engine/transfer.hpp"
#include "allhands/host/membership.hpp"
#include "allhands/host/tuning.hpp"
#include "allhands/transport/transport.hpp"

namespace allhands {

class Endpoint {
 public:
  Endpoint(Transport& transport, const Membership& members, const Tuning& tuning);

  // Writes the whole message now; false: it cannot, and nothing happened.
  bool send_at_once(const Buffer& buffer, int to, Tag tag);
  // Copies the next record of `from` to `buffer`, if that is the message for it and
  // nothing else waits to be matched; else false, and nothing happened.
  bool recv_at_once(const Buffer& buffer, int from, Tag tag);

  // All to one peer.
  void post_sends(std::span<const TransferPtr> sends, Ended& ended);
  // A probe looks first at all that has come.
  void post_recv(const TransferPtr& receive, Ended& ended);
  // Whether a send of this rank to itself has a receive, or a receive a send.
  bool has_counterpart(const Transfer& to_itself, Ended& ended);

  // Takes in what peers have written, writes what there is room for, copies a part of
  // each single copy. True: something moved. Throws LinkError, as others that do so;
  // the transfers that it ends have ended then all the same.
  bool progress(Ended& ended);
  bool progress(int peer, Ended& ended);
  // From any thread: there are parts for this rank to copy.
  bool has_part() const { return num_copying_.load(std::memory_order_relaxed) != 0; }

  // Takes a transfer out of wherever it is and ends it; nothing happens if it has just
  // ended.
  void withdraw(const TransferPtr& transfer, const Error& error, Ended& ended);
  // Ends all transfers that have not ended.
  void end_all(const Error& reason, Ended& ended);
  std::vector<TransferPtr> pending() const;
  bool has_sends() const;
  // Peers with which something was exchanged.
  const std::vector<int>& open() const { return open_; }

  // Nothing is left that `peer` could not get once this rank is gone.
  bool is_safe_to_leave(int peer) const;
  // Messages that left early and that `peer` has not received, as far as it has told;
  // not where it has refused one, of which this rank was told.
  bool has_unreceived(int peer) const;
  // Throws the error of such a message that `peer` refused. Once each.
  void throw_refusal(int peer);

 private:
  struct Channel {
    Channel(Link& link, const Tuning& tuning)
        : link(link), outbox(link, tuning), inbox(link, outbox) {}

    Link& link;
    Outbox outbox;
    Inbox inbox;
    bool is_copying = false;   // counted in num_copying_
    bool is_broken = false;    // it has thrown a LinkError
    bool has_refused = false;  // the peer, a message; it may leave without the next
    // Messages of collectives to the peer and from it, in the order in which both post
    // them.
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
  // By peer; null before its first use.
  std::vector<std::unique_ptr<Channel>> channels_;
  std::vector<int> open_;  // peers whose is not
  std::atomic<int> num_copying_ = 0;
  Matching matching_;
  std::uint32_t next_id_ = 1;
};

}  // namespace allhands
