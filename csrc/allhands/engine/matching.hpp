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
  // The message for a new receive, which is then no longer kept; or none.
  std::optional<Unexpected> match(const Transfer& receive);

  // Whether there is one for it now.
  bool has_receive_for(int source, Tag tag) const;
  bool has_message_for(const Transfer& receive) const;

  void post(TransferPtr receive) { posted_.push_back(std::move(receive)); }
  void keep(Unexpected message) { unexpected_.push_back(std::move(message)); }

  // The oldest receive in `context` that could get a message from `source`, no longer
  // posted; or null.
  TransferPtr take_waiting_for(int source, Context context);
  // If it is among the posted.
  void withdraw(const Transfer& receive);
  // Drops the unmatched offer that its sender has given up.
  void drop_offer(int source, std::uint32_t send_id);
  const std::list<TransferPtr>& posted() const { return posted_; }
  // No receive waits for its message, and no message for its receive.
  bool is_empty() const { return posted_.empty() && unexpected_.empty(); }

 private:
  std::list<TransferPtr> posted_;
  std::list<Unexpected> unexpected_;
};

}  // namespace allhands
