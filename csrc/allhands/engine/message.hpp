// The records that ranks write to each other.
//
// Eager protocol: a small message is sent at once, with its data. Rendezvous protocol:
// a large message is offered first. When a receive matches the offer, the receiver
// begins a single copy, asks the sender to join in, and says when it is over. If the
// transport or the arrays' layout do not allow a single copy, the receiver accepts the
// offer, and the data follows in pieces directly into the receive's array. A small
// message is offered too while the receiver keeps many bytes of this sender's that no
// receive has matched. So the memory for unmatched messages is bounded, and no message
// holds up those behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "allhands/base/buffer.hpp"
#include "allhands/base/dtype.hpp"
#include "allhands/engine/tag.hpp"
#include "allhands/transport/landings.hpp"
#include "allhands/transport/single_copy.hpp"

namespace allhands {

// What a record asks or says; the comments tell who writes it.
enum class MessageKind : std::uint8_t {
  Eager,   // sender: a whole message
  Offer,   // sender: a large message, with the key of its array
  Join,    // receiver: I copy the offered `send_id` to my array, whose key this is
  Over,    // receiver: `send_id` is not needed any more
  Accept,  // receiver: send the offered `send_id` in pieces, for my `recv_id`
  Data,    // sender: the next piece for `recv_id`
  Refuse,  // receiver: `send_id` does not fit the receive that matches it
  Cancel,  // sender: `send_id` has been given up
};

// The head of a record.
struct Message {
  MessageKind kind;
  DType dtype;
  std::uint32_t send_id;
  std::uint32_t recv_id;
  Context context;
  std::int64_t number;  // the number of its tag
  std::uint64_t count;  // elements of the whole message, or in Data of the piece

  Tag tag() const { return {number, context}; }
};
static_assert(sizeof(Message) == 32, "header and 24 bytes of data in one cache line");
static_assert(sizeof(Message) == LandingRecord::kHeadBytes);

// A message without data. `check` is a digest of the rest: if something has overwritten
// the key, a copy could go anywhere.
struct ControlMessage {
  ControlMessage() = default;
  explicit ControlMessage(const Message& message, ArrayKey key = kNoKey);

  Message message;
  ArrayKey key;
  std::uint64_t check;
};

// Reads the head of a record, whose data follows it or has landed. Throws LinkError.
Message read_message(std::span<const std::byte> record, const Landed& landed = {});
// The key of a message without data that read_message has accepted. Throws LinkError.
ArrayKey read_key(std::span<const std::byte> record);

// What an unmatched Eager message counts for in the receiver's memory.
inline std::size_t kept_bytes(const Message& message) {
  constexpr std::size_t kBookkeeping = 128;
  return message.count * size_of(message.dtype) + kBookkeeping;
}

// Data of fewer bytes is copied faster than it lands.
inline constexpr std::size_t kLeastLanding = 4096;

// Whether data can go from array to array.
inline bool can_land(const Buffer& buffer) {
  return buffer.is_contiguous() && buffer.num_bytes() >= kLeastLanding;
}

inline std::span<std::byte> memory_of(const Buffer& buffer) {
  return {static_cast<std::byte*>(buffer.data), buffer.num_bytes()};
}

// The key of the pieces for a receive. Keys of collectives instead count the messages
// between two ranks, which both ranks count the same way.
inline LandingKey key_of_pieces(std::uint32_t recv_id) {
  return LandingKey{recv_id} << 1 | 1;
}
inline LandingKey key_of_collectives(std::uint64_t number) { return number << 1; }

// The data follows the head.
inline std::byte* data_of(std::byte* record) { return record + sizeof(Message); }
inline const std::byte* data_of(std::span<const std::byte> record) {
  return record.data() + sizeof(Message);
}

}  // namespace allhands
