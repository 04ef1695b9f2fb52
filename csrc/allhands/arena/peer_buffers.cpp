#include "allhands/arena/peer_buffers.hpp"

namespace allhands {

std::optional<PeerBuffers> PeerBuffers::meet(Arena& arena, std::span<const Buffer> mine,
                                             std::size_t bytes) {
  if (!arena.shared_arrays()->is_used() || bytes < arena.tuning().direct_bytes)
    return std::nullopt;
  const std::optional<SharedRegion> region = say(arena, mine);
  arena.enter();
  bool is_common = region.has_value();
  for (int rank = 0; is_common && rank < arena.size(); ++rank)
    is_common = places(arena, rank)[0] == region->number;
  if (is_common) return PeerBuffers(arena, {*region, nullptr});  // the caller keeps it
  arena.start_over();
  return std::nullopt;
}

std::optional<PeerBuffers> PeerBuffers::meet_root(Arena& arena,
                                                  std::span<const Buffer> own, int root,
                                                  std::size_t bytes) {
  if (!arena.shared_arrays()->is_used() || bytes < arena.tuning().direct_bytes)
    return std::nullopt;
  if (arena.rank() == root) say(arena, own);
  arena.enter();
  arena.use_chunks(2);
  auto held = arena.shared_arrays()->hold(places(arena, root)[0]);
  const auto has_it = [&](int rank) -> std::byte& { return *arena.slot(rank, 1); };
  has_it(arena.rank()) = std::byte{held.has_value()};
  arena.wait_all(arena.publish());
  bool is_common = true;
  for (int rank = 0; rank < arena.size(); ++rank)
    is_common &= has_it(rank) == std::byte{1};
  if (is_common) return PeerBuffers(arena, std::move(*held));
  arena.start_over();
  return std::nullopt;
}

std::optional<SharedRegion> PeerBuffers::say(const Arena& arena,
                                             std::span<const Buffer> mine) {
  std::optional<SharedRegion> common;
  std::uint64_t* const said = places(arena, arena.rank());
  said[0] = 0;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    said[1 + i] = 0;
    if (mine[i].count == 0) continue;  // nobody reads it
    const auto region = arena.shared_arrays()->find(mine[i]);
    if (!region || (common && common->number != region->number)) return std::nullopt;
    common = region;
    said[1 + i] = static_cast<std::uint64_t>(static_cast<std::byte*>(mine[i].data) -
                                             region->part(region->rank));
  }
  if (common) said[0] = common->number;
  return common;
}

std::byte* PeerBuffers::at(int rank, std::size_t i) const {
  return held_.region.part(rank) + places(arena_, rank)[1 + i];
}

}  // namespace allhands
