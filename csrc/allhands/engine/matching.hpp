// Which message goes to which receive: a message goes to the oldest posted receive
// whose source and tag fit, and a new receive gets the oldest unmatched message. No
// I/O; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "allhands/engine/message.hpp"
#include "allhands/engine/transfer.hpp"

namespace allhands {

// A message that came before its receive was posted.
struct Unexpected {
  int source;
  Message message;
  std::vector<std::byte> record;  // as it came, with the message
};

// The posted receives and the messages that wait for each other.
class Matching {
 public:
  // Removes and returns the receive for a message from `source`, or null.
  TransferPtr match(int source, Tag tag);
  // Does the same for a probe, which only looks for the message; there may be several.
  TransferPtr match_probe(int source, Tag tag);
  // Removes and returns the message for a new receive, or none.
  std::optional<Unexpected> match(const Transfer& receive);

  // Whether a receive is posted for such a message.
  bool has_receive_for(int source, Tag tag) const;
  // Returns the message for the receive, or null. It stays valid until something is
  // matched.
  const Unexpected* find(const Transfer& receive) const;

  void post(TransferPtr receive);
  void keep(Unexpected message) { unexpected_.push_back(std::move(message)); }

  // Removes and returns the oldest receive in `context` that could get a message from
  // `source`, or null.
  TransferPtr take_waiting_for(int source, Context context);
  // Removes the receive if it is posted.
  void withdraw(const Transfer& receive);
  // Removes the unmatched offer that its sender has given up.
  void drop_offer(int source, std::uint32_t send_id);
  // For each source, the oldest receive first.
  std::vector<TransferPtr> posted() const;
  // Whether no receive and no message waits.
  bool is_empty() const { return num_posted_ == 0 && unexpected_.empty(); }

 private:
  using Receives = std::list<TransferPtr>;  // the oldest first

  // Null if no receive was ever posted for the source.
  Receives* receives_from(int source);
  // Removes and returns the oldest receive, of those from `source` and from any source,
  // for which `is_it` is true.
  template <class Predicate>
  TransferPtr take_oldest(int source, Predicate is_it);
  TransferPtr take(Receives& receives, Receives::iterator at);

  // By source, with those from any source first: thousands of receives may wait for
  // messages of each source.
  std::vector<Receives> posted_;
  std::size_t num_posted_ = 0;
  std::list<Unexpected> unexpected_;
};

}  // namespace allhands
