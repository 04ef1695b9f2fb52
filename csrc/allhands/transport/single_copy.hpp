// Large messages that go from the sender's array to the receiver's with one copy, past
// the records. A transport need not offer it.
//
// The sender offers a message with a *key* to its array, the receiver begins it and
// answers with a key to its own. Both travel in records, which are the engine's. From
// then on both sides are asked for *parts* again and again: of each, the transport
// copies what it can without waiting. Messages are numbered by their sender, from 1; in
// each direction of a link there is one at a time. Thread rule: as Link's.
#pragma once

#include <cstdint>

#include "allhands/base/buffer.hpp"

namespace allhands {

// What one side needs to reach the other's array; the transport alone knows how.
using ArrayKey = std::uint64_t;
inline constexpr ArrayKey kNoKey = 0;

// The sender's side of single copies to one peer.
class SingleCopySender {
 public:
  virtual ~SingleCopySender() = default;

  // The key to offer `buffer` with; kNoKey where it cannot be sent so.
  virtual ArrayKey key_of(const Buffer& buffer) const = 0;
  // The receiver has begun `message`: help it to copy `from`.
  virtual void join(std::uint32_t message, const Buffer& from, ArrayKey receiver) = 0;
  // There may be a part for this side to copy.
  virtual bool has_part() const = 0;
  // Copies one. False: none was left.
  virtual bool copy_part() = 0;
  // The message that was joined is over.
  virtual void end() = 0;
  // Before the array of a message that is given up may change: what the receiver has
  // read of it does not count. The receiver is told by a record too.
  virtual void withdraw() = 0;
};

// The receiver's side of single copies from one peer.
class SingleCopyReceiver {
 public:
  enum class State { Going, Complete, Refused };

  virtual ~SingleCopyReceiver() = default;

  // Whether a message can be received into `buffer` so, as far as is known.
  virtual bool can_receive(const Buffer& buffer) const = 0;
  // Begins `message`; the key to answer with.
  virtual ArrayKey begin(std::uint32_t message, const Buffer& to, ArrayKey sender) = 0;
  // There may be a part for this side to copy.
  virtual bool has_part() const = 0;
  // Copies one. Complete: all of it is there, unless its sender has withdrawn it, see
  // num_withdrawn(). Refused: it cannot be done; the message has to come in records.
  // Throws LinkError.
  virtual State copy_part() = 0;
  // How many messages the sender has withdrawn, as of the last part at the earliest.
  virtual std::uint32_t num_withdrawn() const = 0;
  // The message that was begun is over; returns when nobody writes to the array any
  // more.
  virtual void end() = 0;
};

}  // namespace allhands
