// Which message goes to which receive: the oldest posted receive whose source and tag
// fit, the oldest unmatched message for a new receive. No I/O; not thread-safe.
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
  std::vector<std::byte> record;  // as it came, the message included
};

// The posted receives and the messages that wait for each other.
class Matching {
 public:
  // The receive for a message from `source`, which is then no longer posted; or null.
  TransferPtr match(int source, Tag tag);
  // The same for one that only looks for it, of which there may be several.
  TransferPtr match_probe(int source, Tag tag);
  // The message for a new receive, which is then no longer kept; or none.
  std::optional<Unexpected> match(const Transfer& receive);

  // Whether there is one for it now.
  bool has_receive_for(int source, Tag tag) const;
  // The message for it, which is kept; or null. Until something is matched.
  const Unexpected* find(const Transfer& receive) const;

  void post(TransferPtr receive);
  void keep(Unexpected message) { unexpected_.push_back(std::move(message)); }

  // The oldest receive in `context` that could get a message from `source`, no longer
  // posted; or null.
  TransferPtr take_waiting_for(int source, Context context);
  // If it is among the posted.
  void withdraw(const Transfer& receive);
  // Drops the unmatched offer that its sender has given up.
  void drop_offer(int source, std::uint32_t send_id);
  // The oldest of a source first.
  std::vector<TransferPtr> posted() const;
  // No receive waits for its message, and no message for its receive.
  bool is_empty() const { return num_posted_ == 0 && unexpected_.empty(); }

 private:
  using Receives = std::list<TransferPtr>;  // the oldest first

  // Null: none was ever posted for it.
  Receives* receives_from(int source);
  // The oldest of those from `source` or from any for which `is_it` holds.
  template <class Predicate>
  TransferPtr take_oldest(int source, Predicate is_it);
  TransferPtr take(Receives& receives, Receives::iterator at);

  // By source, those from any first: thousands may wait for messages of each.
  std::vector<Receives> posted_;
  std::size_t num_posted_ = 0;
  std::list<Unexpected> unexpected_;
};

}  // namespace allhands
