// What ranks write to each other's rings.
//
// A small message goes at once, with its data (Eager). A large one is offered first;
// the receiver accepts when a receive matches, and the data follows in pieces straight
// into that receive's array. A small one is offered too while the receiver keeps much
// of this sender's that no receive has matched. So what is kept is bounded, and no
// message holds up those behind it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allhands/base/dtype.hpp"

namespace allhands {

enum class MessageKind : std::uint8_t {
  Eager,   // sender: a whole message
  Offer,   // sender: a large message, data to follow
  Accept,  // receiver: go ahead with the offered `send_id`, for my `recv_id`
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
