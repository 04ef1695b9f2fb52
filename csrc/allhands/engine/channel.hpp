// What goes from this rank to one peer, and what this rank receives from it by
// agreement.
//
// Messages leave in the order in which they were posted; control messages and, where
// the ring has room, pieces of accepted large messages overtake them. Not thread-safe:
// the ProgressEngine's lock guards it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "allhands/base/error.hpp"
#include "allhands/base/tuning.hpp"
#include "allhands/engine/handover.hpp"
#include "allhands/engine/message.hpp"
#include "allhands/engine/transfer.hpp"
#include "allhands/transport/shm/mailroom.hpp"

namespace allhands {

class Channel {
 public:
  // `peer` in the mailroom at `base` of rank `self`.
  Channel(const Mailroom& room, std::byte* base, int self, int peer, int peer_pid,
          const Tuning& tuning);

  Ring in;
  Bell& their_bell;

  // A receive that the peer sends pieces for. No transfer: it was given up, drop them.
  struct Receiving {
    TransferPtr transfer;
    std::uint32_t send_id;
    std::size_t left;  // elements to come
  };
  std::map<std::uint32_t, Receiving> receiving;  // by the receive's id

  // A receive that takes its message from the peer's array.
  struct Taking {
    TransferPtr transfer;
    std::uint32_t send_id;
    std::uint64_t address;
  };
  std::deque<Taking> taking;  // those that wait for `inbound`
  Inbound inbound;
  Outbound outbound;
  std::uint32_t num_cancels = 0;  // Cancel messages that came
  bool is_copying = false;        // there are slices for us to copy
  // The send that `receive` takes its message from, or 0.
  std::uint32_t taken_by(const Transfer& receive) const;

  // The error of an eager message that the peer refused after its send had returned.
  std::optional<Error> refused;

  // Whether the peer was gone when last looked.
  bool is_gone = false;
  Deadline::Clock::time_point looked_at{};

  // Writes the whole message now. False, and nothing happened: it is large, or others
  // are before it, or the ring has no room.
  bool send_at_once(const Buffer& buffer, std::int64_t tag, std::uint32_t id);
  void post(TransferPtr send) { fresh_.push_back(std::move(send)); }
  void post_control(const Message& message, std::uint64_t address = 0) {
    control_.push_back({message, address});
  }
  // The peer's answers to an offer: the transfer, no longer here; null: it was given
  // up.
  TransferPtr take(std::uint32_t send_id);
  void accept(std::uint32_t send_id, std::uint32_t recv_id);
  void join(std::uint32_t send_id, std::uint64_t address);
  // Gives a send up; false if it is not (or no longer) here.
  bool withdraw(const Transfer& send);
  // The oldest send that the peer has not accepted, or null.
  TransferPtr oldest() const;
  // All sends that have not ended.
  std::vector<TransferPtr> sends() const;

  // Writes what the ring has room for; appends sends that are done. True: it wrote.
  bool push(std::vector<TransferPtr>& done);
  // Nothing waits to be written or answered.
  bool is_idle() const {
    return control_.empty() && fresh_.empty() && offered_.empty() &&
           streaming_.empty() && !outbound.send();
  }
  // The peer has read everything.
  bool is_drained() const { return is_idle() && out_.is_empty(); }

 private:
  struct Streaming {
    TransferPtr transfer;
    std::uint32_t recv_id;
  };

  MessageKind kind_of(const Buffer& buffer);
  bool write_control(const ControlMessage& control);
  bool write_eager(const Buffer& buffer, std::int64_t tag, std::uint32_t id);
  bool write_piece(Streaming& stream);

  Ring out_;
  const std::size_t eager_limit_;  // bytes of a message
  const std::size_t piece_limit_;  // bytes of a piece
  std::uint64_t eager_bytes_ = 0;  // sent so far, as kept_bytes() counts
  std::uint64_t settled_ = 0;      // of these; what we last saw of it
  std::deque<ControlMessage> control_;
  std::deque<TransferPtr> fresh_;
  std::map<std::uint32_t, TransferPtr> offered_;  // by the send's id
  std::deque<Streaming> streaming_;
};

}  // namespace allhands
