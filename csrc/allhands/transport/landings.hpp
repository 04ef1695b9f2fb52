// Bodies of records that go from the sender's array straight to the receiver's, past
// the memory that records lie in. A transport need not offer it.
//
// Both sides choose the *landing key* of a body alike, before it goes. A receiver that
// knows where a body belongs expects its key; what comes before that, or with another
// key, lies in its record as ever. So it is a shorter way and has no meaning of its
// own. Thread rule: as Link's.
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
  // Of one write().
  static constexpr std::size_t kMostAtOnce = 16;

  virtual ~Landings() = default;

  // Writer: sends the first of `records`, as many as there is room for, and has read
  // their bodies when it returns. Returns how many; where not all, an event will tell.
  virtual std::size_t write(std::span<const LandingRecord> records) = 0;

  // Reader: bodies with `key` go to `memory`, one behind the other, until forget().
  virtual void expect(LandingKey key, std::span<std::byte> memory) = 0;
  // Reader: no more do. Nothing writes to the memory once this has returned; of a body
  // that was on its way there, the rest is lost.
  virtual void forget(LandingKey key) = 0;
  // Reader: what has landed of the front record, which is only its head then.
  virtual Landed landed() = 0;
};

}  // namespace allhands
