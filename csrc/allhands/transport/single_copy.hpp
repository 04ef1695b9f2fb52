// Large messages that go from the sender's array to the receiver's with one copy, past
// the records. A transport need not offer it.
//
// The sender offers a message with a *key* to its array. The receiver begins the
// message and answers with a key to its own array. The engine sends both keys in
// records. From then on each side is asked for *parts* again and again; of each part,
// the transport copies what it can without waiting. Messages are numbered by their
// sender, from 1; in each direction of a link there is one at a time. Thread rule: as
// for Link.
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

  // The key to offer `buffer` with; kNoKey if it cannot be sent by a single copy.
  virtual ArrayKey key_of(const Buffer& buffer) const = 0;
  // Call when the receiver has begun `message`: this side helps it to copy `from`.
  virtual void join(std::uint32_t message, const Buffer& from, ArrayKey receiver) = 0;
  // Whether there may be a part for this side to copy.
  virtual bool has_part() const = 0;
  // Copies one part. Returns false if none was left.
  virtual bool copy_part() = 0;
  // Ends the message that was joined.
  virtual void end() = 0;
  // Call before the array of a message that is given up may change: what the receiver
  // has read of it then does not count. A record tells the receiver too.
  virtual void withdraw() = 0;
};

// The receiver's side of single copies from one peer.
class SingleCopyReceiver {
 public:
  enum class State { Going, Complete, Refused };

  virtual ~SingleCopyReceiver() = default;

  // Whether a message can be received into `buffer` by a single copy, as far as is
  // known.
  virtual bool can_receive(const Buffer& buffer) const = 0;
  // Begins `message`; returns the key to answer with.
  virtual ArrayKey begin(std::uint32_t message, const Buffer& to, ArrayKey sender) = 0;
  // Whether there may be a part for this side to copy.
  virtual bool has_part() const = 0;
  // Copies one part. Complete: the whole message is there, unless its sender has
  // withdrawn it, see num_withdrawn(). Refused: a single copy is not possible; the
  // message has to come in records. Throws LinkError.
  virtual State copy_part() = 0;
  // How many messages the sender has withdrawn, as of the last part at the earliest.
  virtual std::uint32_t num_withdrawn() const = 0;
  // Ends the message that was begun; returns when nobody writes to the array any more.
  virtual void end() = 0;
};

}  // namespace allhands
