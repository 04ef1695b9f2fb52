// Large messages on their way from one peer: offers that a receive has matched. A
// message comes by a single copy, one message at a time, or in pieces. Not thread-safe:
// the ProgressEngine's lock guards it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "allhands/engine/message.hpp"
#include "allhands/engine/outbox.hpp"
#include "allhands/engine/transfer.hpp"
#include "allhands/transport/link.hpp"

namespace allhands {

class Inbox {
 public:
  // `outbox` leads to the same peer and takes the answers; the caller must push it.
  Inbox(Link& link, Outbox& outbox)
      : outbox_(outbox),
        single_copy_(link.single_copy_receiver()),
        landings_(link.landings()) {}

  // Starts the receive of what the peer has offered as `send_id`.
  void start(TransferPtr receive, std::uint32_t send_id, ArrayKey sender);
  // Takes the next piece of a message, which is at `data` or has landed. Throws
  // LinkError.
  void take_piece(const Message& message, const std::byte* data, const Landed& landed,
                  Ended& ended);
  // The peer has given up `send_id`. Returns the receive that gets nothing now, or
  // null.
  TransferPtr cancel(std::uint32_t send_id);
  // Gives a receive up, if it is still here.
  void withdraw(const Transfer& receive);

  // Copies a part of the current single copy. Returns true if it did or if something
  // has ended. Throws LinkError.
  bool copy_part(Ended& ended);
  bool has_part() const { return copying_.transfer && single_copy_->has_part(); }

  // All receives that have not ended.
  std::vector<TransferPtr> receives() const;

 private:
  // A message that comes in pieces. No transfer: it was given up, and its pieces are
  // dropped.
  struct InPieces {
    TransferPtr transfer;
    std::uint32_t send_id;
    std::size_t left;  // elements to come
  };
  // A message that comes by a single copy.
  struct InOneCopy {
    TransferPtr transfer;
    std::uint32_t send_id = 0;
    ArrayKey sender = kNoKey;
  };

  void accept(TransferPtr receive, std::uint32_t send_id);
  void take(Transfer& receive, const Message& message, const std::byte* data,
            const Landed& landed);
  void forget_landing(std::uint32_t recv_id);
  void begin_next();
  TransferPtr end_copying();
  TransferPtr end_single_copy(std::uint32_t send_id);

  Outbox& outbox_;
  SingleCopyReceiver* const single_copy_;        // may be null
  Landings* const landings_;                     // may be null
  std::map<std::uint32_t, InPieces> in_pieces_;  // by the receive's id
  InOneCopy copying_;                            // no transfer: none is under way
  std::deque<InOneCopy> waiting_;                // for the current one to end
  // Number of Cancel messages that have come.
  std::uint32_t num_cancels_ = 0;
};

}  // namespace allhands
