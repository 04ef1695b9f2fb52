// What ranks write to each other's rings.
//
// A small message goes at once, with its data (Eager). A large one is offered first.
// When a receive matches, the receiver begins to copy it from the sender's array, asks
// the sender to join in, and says when it is over. Where the kernel or the arrays'
// layout do not allow that, it accepts the offer, and the data follows in pieces
// straight into the receive's array. A small message is offered too while the receiver
// keeps much of this sender's that no receive has matched. So what is kept is bounded,
// and no message holds up those behind it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allhands/base/dtype.hpp"

namespace allhands {

enum class MessageKind : std::uint8_t {
  Eager,   // sender: a whole message
  Offer,   // sender: a large message; its array is at `address`, 0: not to be read
  Join,    // receiver: I copy the offered `send_id` to my array at `address`
  Over,    // receiver: `send_id` is not needed any more
  Accept,  // receiver: send the offered `send_id` in pieces, for my `recv_id`
  Data,    // sender: the next piece for `recv_id`
  Refuse,  // receiver: `send_id` does not fit the receive that matches it
  Cancel,  // sender: `send_id` has been given up
};

struct Message {
  MessageKind kind;
  DType dtype;
  std::uint32_t send_id;
  std::uint32_t recv_id;
  std::int64_t tag;
  std::uint64_t count;  // elements: of the whole message; of the piece in Data
};
static_assert(sizeof(Message) == 32, "header and 24 bytes of data in one cache line");

// A message without data, and what an Offer or Join has in its place.
struct ControlMessage {
  Message message;
  std::uint64_t address = 0;  // in the memory of whoever writes it
};

// What an unmatched Eager message counts for where it is kept.
inline std::size_t kept_bytes(const Message& message) {
  constexpr std::size_t kBookkeeping = 128;
  return message.count * size_of(message.dtype) + kBookkeeping;
}

// The data lies behind the header.
inline std::byte* data_of(std::byte* record) { return record + sizeof(Message); }
inline const std::byte* data_of(const std::byte* record) {
  return record + sizeof(Message);
}

}  // namespace allhands
