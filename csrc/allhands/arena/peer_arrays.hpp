// The arrays that the other ranks pass to an operation, reached where they lie.
//
// Arrays in a shared array are memory of this process too. Others are read by a system
// call, if the host allows that: one copy instead of the two through the slots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "allhands/arena/arena.hpp"
#include "allhands/arena/ways.hpp"
#include "allhands/base/buffer.hpp"
#include "allhands/base/read_once.hpp"

namespace allhands {

class PeerArrays {
 public:
  // Call after Arena::begin. Every rank says where its arrays lie; if they must not be
  // read in place, no rank does. `mine` must outlive the result. If the arrays of one
  // rank cannot be reached in any of `ways`, no rank gets a result, and the operation
  // goes on as if nothing had happened yet. If `ways` has no such way, the ranks do not
  // meet.
  static std::optional<PeerArrays> meet(Arena& arena, const Ways& ways,
                                        std::span<const Buffer> mine);

  // The same if only the root has arrays. A shared array needs one more
  // synchronisation, since all ranks must still have it mapped.
  static std::optional<PeerArrays> meet_root(Arena& arena, const Ways& ways,
                                             std::span<const Buffer> own, int root);

  // Whether the arrays lie in a shared array; if so, at() gives the address of the i-th
  // array of `rank`.
  bool is_mapped() const { return held_.has_value(); }
  // The address of byte `begin`, from which on there are `bytes`.
  std::byte* at(int rank, std::size_t i, std::size_t begin, std::size_t bytes) const;
  // Where it lies in the memory of `rank`.
  std::uint64_t address(int rank, std::size_t i) const {
    return read_once(places(arena_, rank)[i].address);
  }

  // Copies `bytes` from byte `begin` on of the i-th buffer of `rank`.
  void read(int rank, std::size_t i, std::size_t begin, void* to,
            std::size_t bytes) const;
  // Copies all of it to `to`, which may be that buffer.
  void fetch(int rank, std::size_t i, const Buffer& to,
             Stores stores = Stores::Cached) const;

  // How much of its slot a rank needs to describe `count` buffers at a meeting.
  static std::size_t said_bytes(std::size_t count) {
    return sizeof(Said) + count * sizeof(Place);
  }

 private:
  // What a rank says, in its slot: this, then a Place for each buffer.
  struct Said {
    std::uint64_t region;       // the number of the shared array, 0 for none
    std::uint64_t is_readable;  // by a system call
  };
  struct Place {
    std::uint64_t address;  // in the rank's memory
    std::uint64_t offset;   // in its part of the shared array
  };

  PeerArrays(Arena& arena, std::span<const Buffer> mine,
             std::optional<SharedArrays::Held> held)
      : arena_(arena), mine_(mine), held_(std::move(held)) {}

  static Said& said(const Arena& arena, int rank) {
    return *reinterpret_cast<Said*>(arena.slot(rank, 0));
  }
  static Place* places(const Arena& arena, int rank) {
    return reinterpret_cast<Place*>(&said(arena, rank) + 1);
  }
  static std::optional<SharedRegion> say(const Arena& arena, const Ways& ways,
                                         std::span<const Buffer> mine);
  static std::optional<SharedRegion> say_region(const Arena& arena,
                                                std::span<const Buffer> mine);
  static std::optional<SharedArrays::Held> hold(Arena& arena, int root);

  Arena& arena_;
  std::span<const Buffer> mine_;
  std::optional<SharedArrays::Held> held_;
};

}  // namespace allhands
