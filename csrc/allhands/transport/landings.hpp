// Bodies of records that go from the sender's array straight to the receiver's, past
// the memory that records lie in. A transport need not offer it.
//
// Both sides choose the same *landing key* for a body before it is sent. A receiver
// that knows where a body belongs expects its key. A body that comes before that, or
// with another key, lies in its record as usual. So landing is only a shorter way; it
// has no meaning of its own. Thread rule: as for Link.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace allhands {

using LandingKey = std::uint64_t;
inline constexpr LandingKey kNoLanding = 0;

// A record's body that went to where it was expected.
struct Landed {
  LandingKey key = kNoLanding;
  std::size_t bytes = 0;
};

// A record with a body, as it is sent.
struct LandingRecord {
  static constexpr std::size_t kHeadBytes = 32;

  std::array<std::byte, kHeadBytes> head;
  std::span<const std::byte> body;
  LandingKey key;
};

// Bodies of records that go from array to array.
class Landings {
 public:
  // The most records of one write().
  static constexpr std::size_t kMostAtOnce = 16;

  virtual ~Landings() = default;

  // Writer: sends the first of `records`, as many as there is room for, and returns how
  // many. Their bodies may be read later, see num_read(). If it did not send all, an
  // event tells when there is room.
  virtual std::size_t write(std::span<const LandingRecord> records) = 0;
  // Writer: of how many records, from the first ever written on, the bodies are no
  // longer read. An event tells when there are more.
  virtual std::uint64_t num_read() = 0;
  // Writer: copies bodies that would else be read until the peer's host has them, see
  // num_read(). No event tells when it has them, and that may last.
  virtual void copy_rest() = 0;
  // Writer: returns when no body is read any more.
  virtual void stop_reading() = 0;

  // Reader: bodies with `key` go to `memory`, one after the other, until forget().
  virtual void expect(LandingKey key, std::span<std::byte> memory) = 0;
  // Reader: bodies with `key` no longer go to that memory. Nothing writes to it once
  // this has returned. If a body was on its way there, the rest of it is lost.
  virtual void forget(LandingKey key) = 0;
  // Reader: the part of the front record that has landed; front() then has only its
  // head.
  virtual Landed landed() = 0;
};

}  // namespace allhands
