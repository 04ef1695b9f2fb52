// The arrays that the other ranks pass to an operation, read where they lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "allhands/arena/arena.hpp"
#include "allhands/base/buffer.hpp"

namespace allhands {

class PeerBuffers {
 public:
  // After Arena::begin, in an operation of `bytes`, which all ranks know alike. Every
  // rank says where its buffers lie; if all of them, on all ranks, are in one shared
  // array, each rank can reach all. Else there is none, on any rank, and the operation
  // goes on as if nothing had happened yet. Costs nothing in a group that has never had
  // a shared array.
  static std::optional<PeerBuffers> meet(Arena& arena, std::span<const Buffer> mine,
                                         std::size_t bytes);

  // The same where only the root has buffers: if they are in one shared array that all
  // ranks still have mapped, each rank can reach them. One more synchronisation.
  static std::optional<PeerBuffers> meet_root(Arena& arena, std::span<const Buffer> own,
                                              int root, std::size_t bytes);

  // Where the i-th buffer of `rank` lies.
  std::byte* at(int rank, std::size_t i) const;

  // What a rank says at a meeting about `count` buffers takes so much of its slot.
  static std::size_t said_bytes(std::size_t count) {
    return (1 + count) * sizeof(std::uint64_t);
  }

 private:
  PeerBuffers(const Arena& arena, SharedArrays::Held held)
      : arena_(arena), held_(std::move(held)) {}

  // What a rank says, in its slot: the number of the shared array, 0 for none, then for
  // each buffer the offset in its part.
  static std::uint64_t* places(const Arena& arena, int rank) {
    return reinterpret_cast<std::uint64_t*>(arena.slot(rank, 0));
  }
  static std::optional<SharedRegion> say(const Arena& arena,
                                         std::span<const Buffer> mine);

  const Arena& arena_;
  SharedArrays::Held held_;
};

}  // namespace allhands
