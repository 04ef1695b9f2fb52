// One rank's end of the way to a peer and back: records of bytes, which arrive whole,
// once, and in the order in which they were committed.
//
// A writer reserves room for a record, fills it and commits it; a reader looks at the
// oldest record that has come and pops it. Neither ever waits: a side that finds no
// room, or no record, tries again after an event of the Transport.
//
// A link costs little before its first use, since the connection of the two ranks is
// made only then. Thread rule: has_record() may be called from any thread, everything
// else under one lock per rank.
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

  // Writer: room for a record of `bytes`, which is not 0. Null if there is no room now;
  // an event will tell when there is some.
  virtual std::byte* reserve(std::size_t bytes) = 0;
  // Writer: sends the reserved record.
  virtual void commit() = 0;
  // Writer: makes the peer notice what was committed, even if it sleeps. One call does
  // for several records.
  virtual void wake_peer() = 0;
  // Writer: whether the peer gets everything that was committed even if this process
  // ends now.
  virtual bool is_safe_to_leave() const = 0;

  // Reader: whether front() has something. The caller is expected to read it next.
  virtual bool has_record() const = 0;
  // Reader: the oldest record, followed by up to a cache line of bytes that are not
  // part of it; empty if none has come. Valid until pop(). Throws LinkError.
  virtual std::span<const std::byte> front() = 0;
  // Reader: frees the room of the front record.
  virtual void pop() = 0;

  // Reader: says that it has used up so many bytes of what it had popped and put aside.
  // The writer sees the sum some time later, and so knows how much the reader keeps.
  virtual void settle(std::size_t bytes) = 0;
  virtual std::uint64_t settled() const = 0;

  // The two sides of single copies; null if this transport has none.
  virtual SingleCopySender* single_copy_sender() { return nullptr; }
  virtual SingleCopyReceiver* single_copy_receiver() { return nullptr; }
  // Bodies that go from array to array; null if this transport does not offer that.
  virtual Landings* landings() { return nullptr; }
};

}  // namespace allhands
