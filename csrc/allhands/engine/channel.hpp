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
#include "allhands/engine/message.hpp"
#include "allhands/engine/transfer.hpp"
#include "allhands/transport/mailroom.hpp"

namespace allhands {

class Channel {
 public:
  Channel(Ring out, Ring in, Bell& their_bell)
      : in(in), their_bell(their_bell), out_(out) {}

  Ring in;
  Bell& their_bell;

  // A receive that the peer sends pieces for. No transfer: it was given up, drop them.
  struct Receiving {
    TransferPtr transfer;
    std::uint32_t send_id;
    std::size_t left;  // elements to come
  };
  std::map<std::uint32_t, Receiving> receiving;  // by the receive's id

  // The error of an eager message that the peer refused after its send had returned.
  std::optional<Error> refused;

  // Whether the peer was gone when last looked.
  bool is_gone = false;
  Deadline::Clock::time_point looked_at{};

  void post(TransferPtr send) { fresh_.push_back(std::move(send)); }
  void post_control(const Message& message) { control_.push_back(message); }
  // The peer's answers to an offer. The transfer, or null if it was given up.
  TransferPtr accept(std::uint32_t send_id, std::uint32_t recv_id);
  TransferPtr refuse(std::uint32_t send_id);
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
    return control_.empty() && fresh_.empty() && offered_.empty() && streaming_.empty();
  }
  // The peer has read everything.
  bool is_drained() const { return is_idle() && out_.is_empty(); }

 private:
  struct Streaming {
    TransferPtr transfer;
    std::uint32_t recv_id;
  };

  MessageKind kind_of(const Transfer& send) const;
  bool write_control(const Message& message);
  bool write_first(const Transfer& send, MessageKind kind);
  bool write_piece(Streaming& stream);

  Ring out_;
  std::uint64_t eager_bytes_ = 0;  // sent so far, as kept_bytes() counts
  std::deque<Message> control_;
  std::deque<TransferPtr> fresh_;
  std::map<std::uint32_t, TransferPtr> offered_;  // by the send's id
  std::deque<Streaming> streaming_;
};

}  // namespace allhands
