// An algorithm as data: what one participant of a collective does, as rounds of steps,
// without any I/O.
//
// A function of this folder makes the schedule of one participant from numbers that all
// participants know. The code that runs schedules, the executor between hosts or a
// simulator, keeps these rules, and every schedule may rely on them:
//
// - The steps of a round begin together, in their order; the next round begins when all
//   have ended. Participants may have different numbers of rounds.
// - Between two participants the k-th Send of one meets the k-th receive (Receive or
//   ReceiveReduce) of the other, of the same count. So messages need no tags.
// - A Send may wait until its receive has begun. No schedule relies on buffers.
// - No step writes what another step of its round reads or writes.
// - Input is only read. It may be the same memory as Output: all of it if the two have
//   the same length, or else the participant's own part within the longer one. A Copy
//   onto itself then does nothing. all_to_all needs a separate Output.
// - The schedule of a participant without an array (such as an Output if it is not the
//   root) does not use that array.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace allhands {

// A memory that an operation works on.
enum class Memory : std::uint8_t { Input, Output, Scratch };

// Elements [at, at + count) of a memory.
struct Range {
  Memory memory = Memory::Input;
  std::size_t at = 0;
  std::size_t count = 0;

  bool operator==(const Range&) const = default;

  Range part(std::size_t offset, std::size_t length) const {
    return {memory, at + offset, length};
  }
};

// The range of messages without elements.
inline constexpr Range kNothing = {Memory::Output, 0, 0};

// The kind of a step.
enum class StepKind : std::uint8_t {
  Send,           // `from` goes to the peer; without elements it is still a message
  Receive,        // what the peer sends goes into `to`
  ReceiveReduce,  // to = op(from, received), or op(received, from)
  Copy,           // to = from
  Reduce,         // to = op over the parts of `from`
};

// One step of a participant. `from` and `to` of a ReceiveReduce are the same range or
// do not overlap.
struct Step {
  StepKind kind;
  int peer = -1;  // for Send and the receives
  Range from = {};
  Range to = {};
  // ReceiveReduce: the received operand is the left one. Participants that compute the
  // same element by different steps use the same order, so they get the same bits.
  bool is_received_first = false;
  // Reduce: `from` has `num_parts` parts as long as `to`. They are reduced in order,
  // from `first_part` around to the one before it, rounded as one reduction.
  int num_parts = 0;
  int first_part = 0;

  bool operator==(const Step&) const = default;

  static Step send(int peer, Range from) {
    return {.kind = StepKind::Send, .peer = peer, .from = from};
  }
  static Step receive(int peer, Range to) {
    return {.kind = StepKind::Receive, .peer = peer, .to = to};
  }
  // to = op(from, received)
  static Step reduce_with(Range from, int peer, Range to) {
    return {.kind = StepKind::ReceiveReduce, .peer = peer, .from = from, .to = to};
  }
  // to = op(received, from)
  static Step reduce_onto(int peer, Range from, Range to) {
    return {.kind = StepKind::ReceiveReduce,
            .peer = peer,
            .from = from,
            .to = to,
            .is_received_first = true};
  }
  static Step copy(Range from, Range to) {
    return {.kind = StepKind::Copy, .from = from, .to = to};
  }
  static Step reduce(Range from, int num_parts, int first_part, Range to) {
    return {.kind = StepKind::Reduce,
            .from = from,
            .to = to,
            .num_parts = num_parts,
            .first_part = first_part};
  }
};

using Round = std::vector<Step>;

// What one participant does.
struct Schedule {
  std::size_t scratch = 0;  // elements
  std::vector<Round> rounds;

  bool operator==(const Schedule&) const = default;

  // Adds a round without its steps that have no elements, unless nothing is left of it.
  void add(Round round);
  // Adds a round with its messages without elements. Both functions leave out copies
  // onto themselves and make scratch large enough.
  void add_whole(Round round);
  // Adds the rounds of `next`, which use the same scratch.
  void append(const Schedule& next);
  // The same schedule with all that is in `memory` moved to `elsewhere`, from `at` on.
  Schedule moved(Memory memory, Memory elsewhere, std::size_t at) const;
};

}  // namespace allhands
