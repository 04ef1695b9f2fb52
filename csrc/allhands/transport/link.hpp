// One rank's end of the way to a peer and back: records of bytes, which arrive whole,
// once, and in the order in which they were committed.
//
// A writer reserves room for a record, fills it and commits it; a reader looks at the
// oldest record that has come and pops it. Neither ever waits: what finds no room, or
// no record, tries again after an event of the Transport.
//
// A link costs little before its first use: what connects the two ranks is made then.
// Thread rule: has_record() from any thread; the rest under one lock per rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "allhands/base/error.hpp"
#include "allhands/transport/landings.hpp"
#include "allhands/transport/single_copy.hpp"

namespace allhands {

// What has come over a link is no record: nothing that it carries can be trusted now.
class LinkError : public Error {
 public:
  explicit LinkError(const std::string& problem) : Error(ErrorKind::Backend, problem) {}
};

// One rank's end of the way to a peer and back.
class Link {
 public:
  virtual ~Link() = default;

  // The most bytes of a record; two such records fit at the same time.
  virtual std::size_t max_record() = 0;

  // Writer: room for a record of `bytes`, not 0, or null: there is none now, and an
  // event will tell of some.
  virtual std::byte* reserve(std::size_t bytes) = 0;
  // Writer: the reserved record is on its way.
  virtual void commit() = 0;
  // Writer: the peer notices what was committed, though it may sleep. Once for several.
  virtual void wake_peer() = 0;
  // Writer: the peer gets all that was committed even if this process ends now.
  virtual bool is_safe_to_leave() const = 0;

  // Reader: whether front() has something. Whoever asks will read it next.
  virtual bool has_record() const = 0;
  // Reader: the oldest record, with up to a cache line of what is no part of it behind;
  // empty where none has come. Valid until pop(). Throws LinkError.
  virtual std::span<const std::byte> front() = 0;
  // Reader: gives the front record's room back.
  virtual void pop() = 0;

  // Reader: so much of what it has popped and put aside is used up. The writer sees the
  // sum, some time later, and so how much the reader keeps.
  virtual void settle(std::size_t bytes) = 0;
  virtual std::uint64_t settled() const = 0;

  // The two sides of single copies, where this transport can; else null.
  virtual SingleCopySender* single_copy_sender() { return nullptr; }
  virtual SingleCopyReceiver* single_copy_receiver() { return nullptr; }
  // Bodies that go from array to array, where this transport can; else null.
  virtual Landings* landings() { return nullptr; }
};

}  // namespace allhands
