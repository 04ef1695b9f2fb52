// What goes from this rank to one peer: messages in the order in which they were
// posted. Control messages, and pieces of accepted large messages if the link has room,
// overtake them. Not thread-safe: the ProgressEngine's lock guards it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "allhands/engine/message.hpp"
#include "allhands/engine/transfer.hpp"
#include "allhands/host/tuning.hpp"
#include "allhands/transport/link.hpp"

namespace allhands {

class Outbox {
 public:
  Outbox(Link& link, const Tuning& tuning)
      : link_(link),
        single_copy_(link.single_copy_sender()),
        landings_(link.landings()),
        tuning_(tuning) {}

  // Writes the whole message now. Returns false, and nothing has happened, if it is
  // large, others are before it, or the link has no room.
  bool send_at_once(const Buffer& buffer, Tag tag, std::uint32_t id);
  void post(TransferPtr send) { fresh_.push_back(std::move(send)); }
  void post_control(const Message& message, ArrayKey key = kNoKey) {
    control_.emplace_back(message, key);
  }

  // For the peer's answers to an offer. Removes and returns the send; null if it was
  // given up.
  TransferPtr take(std::uint32_t send_id);
  void accept(std::uint32_t send_id, std::uint32_t recv_id);
  void join(std::uint32_t send_id, ArrayKey receiver);

  // Gives a send up, if it is still here.
  void withdraw(const Transfer& send);
  // The oldest send in `context` that the peer has not accepted, or null.
  TransferPtr oldest(Context context) const;
  // All sends that have not ended.
  std::vector<TransferPtr> sends() const;

  // Writes what the link has room for. Returns true if it wrote something.
  bool push(Ended& ended);
  // Copies a part of a message that the peer receives by a single copy. Returns false
  // if there is none.
  bool copy_part();
  bool has_part() const { return joined_ && single_copy_->has_part(); }

  // Ends the sends that were written and only wait for the link, if it can do without
  // their arrays by copying.
  void end_lent(Ended& ended);

  // Whether nothing waits to be written or answered.
  bool is_idle() const {
    return control_.empty() && fresh_.empty() && offered_.empty() &&
           streaming_.empty() && lent_.empty() && !joined_;
  }
  // Whether there are eager messages that no receive of the peer has got, as far as it
  // told.
  bool has_unreceived() const { return eager_bytes_ != link_.settled(); }

 private:
  struct Streaming {
    TransferPtr transfer;
    std::uint32_t recv_id;
  };
  // A send that was written, and whose array the link may still read.
  struct Lent {
    TransferPtr transfer;
    std::uint64_t end;  // records with bodies up to its last one
  };

  void measure();
  void lend(TransferPtr send, std::uint64_t end, Ended& ended);
  bool end_read(Ended& ended);
  bool is_eager(const Buffer& buffer, Context context);
  bool push_fresh(Ended& ended);
  std::size_t write_fresh(Ended& ended);
  std::size_t land_fresh(Ended& ended);
  bool lands_at_once(const Transfer& send);
  bool write_control(const ControlMessage& control);
  bool write_eager(const Buffer& buffer, Tag tag, std::uint32_t id);
  bool write_data(const Message& message, const Buffer& part);
  bool write_pieces(Streaming& stream);
  Message piece_of(const Streaming& stream, std::size_t at) const;
  ArrayKey key_of(const Buffer& buffer) const;

  Link& link_;
  SingleCopySender* const single_copy_;  // may be null
  Landings* const landings_;             // may be null
  const Tuning& tuning_;
  // In bytes of data; known once a message is sent, as a link costs memory from then
  // on.
  std::size_t record_limit_ = 0;
  std::size_t eager_limit_ = 0;    // of a message of the program
  std::size_t piece_limit_ = 0;    // of a piece
  std::uint64_t eager_bytes_ = 0;  // sent so far, as kept_bytes() counts
  std::uint64_t settled_ = 0;      // of these; as last seen
  std::deque<ControlMessage> control_;
  std::deque<TransferPtr> fresh_;
  std::map<std::uint32_t, TransferPtr> offered_;  // by the send's id
  std::deque<Streaming> streaming_;
  std::deque<Lent> lent_;
  std::uint64_t num_bodies_ = 0;  // written so far, as Landings::num_read() counts
  TransferPtr joined_;            // the send that the peer receives by a single copy
};

}  // namespace allhands
