// The flight recorder of a group: its last collectives and its last messages, always
// on. See FlightRing for what it costs, and for threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "allhands/arena/descriptor.hpp"
#include "allhands/base/buffer.hpp"
#include "allhands/base/flight_ring.hpp"

namespace allhands {

// One operation as it is told to people.
struct FlightEntry {
  const char* op;
  bool is_message;
  std::uint64_t sequence;  // of a message: how many of this rank's came before, plus 1
  FlightRecord record;
};

// The last collectives and messages of a group.
class FlightRecorder {
 public:
  // As they are by default in a group.
  static constexpr std::size_t kLength = 2048;

  // The last `length` collectives, and as many messages.
  explicit FlightRecorder(std::size_t length)
      : collectives_(length), messages_(length) {}

  // The collective whose turn it is; see FlightRing::begin.
  FlightSlot* begin(std::uint64_t sequence, const Descriptor& descriptor,
                    bool is_async = false, Ticks issued = 0) {
    return collectives_.begin(sequence, facts_of(descriptor, is_async), issued);
  }
  FlightSlot* begin_message(bool is_send, const Buffer& buffer, int peer,
                            std::int64_t tag, bool is_async) {
    return messages_.begin_next({.op = is_send ? kSend : kRecv,
                                 .dtype = buffer.dtype,
                                 .is_async = is_async,
                                 .partner = peer,
                                 .count = buffer.count,
                                 .tag = tag});
  }

  // What there is of both, by the time when each was issued.
  std::vector<FlightEntry> read() const;
  // One that waits for its turn in a queue.
  static FlightEntry scheduled(std::uint64_t sequence, const Descriptor& descriptor,
                               Ticks issued);

 private:
  static constexpr std::uint8_t kSend = 1, kRecv = 2;

  static FlightFacts facts_of(const Descriptor& descriptor, bool is_async) {
    return {.op = static_cast<std::uint8_t>(descriptor.op),
            .dtype = descriptor.dtype,
            .reduce_op = descriptor.reduce_op,
            .is_async = is_async,
            .partner = descriptor.root,
            .count = descriptor.count};
  }

  FlightRing collectives_, messages_;
};

}  // namespace allhands
