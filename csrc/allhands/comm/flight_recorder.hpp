// The flight recorder of a group: its last collectives and its last messages, always
// on. See FlightRing for what it costs, and for threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "allhands/arena/descriptor.hpp"
#include "allhands/base/buffer.hpp"
#include "allhands/base/flight_ring.hpp"
#include "allhands/host/membership.hpp"

namespace allhands {

// One operation as it is told to people.
struct FlightEntry {
  const char* op;
  bool is_message;
  std::uint64_t sequence;  // of a message: its number among this rank's, from 1
  FlightRecord record;
};

// What a rank does with a message. The numbers are in records.
enum class MessageOp : std::uint8_t { Send = 1, Recv, Probe };

const char* name_of(MessageOp op);

// The last collectives and messages of a group.
class FlightRecorder {
 public:
  // The default length in a group.
  static constexpr std::size_t kLength = 2048;

  // Keeps the last `length` collectives, and as many messages, in `memory` if that is
  // given.
  FlightRecorder(std::size_t length, std::shared_ptr<FlightMemory> memory,
                 const Membership& group, std::uint64_t key);

  // Begins the record of the collective whose turn it is; see FlightRing::begin.
  FlightSlot* begin(std::uint64_t sequence, const Descriptor& descriptor,
                    bool is_async = false, Ticks issued = 0) {
    return collectives_.begin(sequence, facts_of(descriptor, is_async), issued);
  }
  FlightSlot* begin_message(MessageOp op, const Buffer& buffer, int peer,
                            std::int64_t tag, bool is_async) {
    return messages_.begin_next({.op = static_cast<std::uint8_t>(op),
                                 .dtype = buffer.dtype,
                                 .is_async = is_async,
                                 .partner = peer,
                                 .count = buffer.count,
                                 .tag = tag});
  }

  // Counts of the threads that wait for messages, and for Works.
  std::atomic<int>& num_in_messages() { return row_.num_in_messages(); }
  std::atomic<int>& num_in_works() { return row_.num_in_works(); }

  // The recorded collectives and messages, ordered by the time when each was issued.
  std::vector<FlightEntry> read() const;
  // The entry of a collective that waits for its turn in a queue.
  static FlightEntry scheduled(std::uint64_t sequence, const Descriptor& descriptor,
                               Ticks issued);

 private:
  static FlightFacts facts_of(const Descriptor& descriptor, bool is_async) {
    return {.op = static_cast<std::uint8_t>(descriptor.op),
            .dtype = descriptor.dtype,
            .reduce_op = descriptor.reduce_op,
            .is_async = is_async,
            .partner = descriptor.root,
            .count = descriptor.count};
  }

  FlightRow row_;
  FlightRing collectives_, messages_;
};

}  // namespace allhands
