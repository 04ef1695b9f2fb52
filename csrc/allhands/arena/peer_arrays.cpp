#include "allhands/arena/peer_arrays.hpp"

#include "allhands/kernels/copy_bytes.hpp"
#include "allhands/kernels/pack.hpp"

namespace allhands {

std::optional<PeerArrays> PeerArrays::meet(Arena& arena, const Ways& ways,
                                           std::span<const Buffer> mine) {
  if (!ways.may_copy() && !ways.may(Way::Mapped)) return std::nullopt;
  std::optional<SharedRegion> region = say(arena, ways, mine);
  arena.enter();
  bool is_readable = ways.may_copy();
  for (int rank = 0; rank < arena.size(); ++rank) {
    is_readable = is_readable && said(arena, rank).is_readable;
    if (region && said(arena, rank).region != region->number) region.reset();
  }
  if (region)  // the caller keeps it
    return PeerArrays(arena, mine, SharedArrays::Held{*region, nullptr});
  if (is_readable) return PeerArrays(arena, mine, std::nullopt);
  arena.start_over();
  return std::nullopt;
}

std::optional<PeerArrays> PeerArrays::meet_root(Arena& arena, const Ways& ways,
                                                std::span<const Buffer> own, int root) {
  if (!ways.may_copy() && !ways.may(Way::Mapped)) return std::nullopt;
  if (arena.rank() == root) say(arena, ways, own);
  arena.enter();
  if (said(arena, root).region != 0)
    if (auto held = hold(arena, root)) return PeerArrays(arena, own, std::move(held));
  if (ways.may_copy() && said(arena, root).is_readable)
    return PeerArrays(arena, own, std::nullopt);
  arena.start_over();
  return std::nullopt;
}

// The root's shared array, if every rank still has it mapped.
std::optional<SharedArrays::Held> PeerArrays::hold(Arena& arena, int root) {
  arena.use_chunks(2);
  auto held = arena.shared_arrays()->hold(said(arena, root).region);
  const auto has_it = [&](int rank) -> std::byte& { return *arena.slot(rank, 1); };
  has_it(arena.rank()) = std::byte{held.has_value()};
  arena.meet();
  for (int rank = 0; rank < arena.size(); ++rank)
    if (has_it(rank) != std::byte{1}) return std::nullopt;
  return held;
}

std::optional<SharedRegion> PeerArrays::say(const Arena& arena, const Ways& ways,
                                            std::span<const Buffer> mine) {
  bool is_readable = !mine.empty();
  for (std::size_t i = 0; i < mine.size(); ++i) {
    is_readable = is_readable && mine[i].is_contiguous();
    places(arena, arena.rank())[i] = {reinterpret_cast<std::uint64_t>(mine[i].data), 0};
  }
  std::optional<SharedRegion> region;
  if (ways.may(Way::Mapped)) region = say_region(arena, mine);
  said(arena, arena.rank()) = {region ? region->number : 0, is_readable};
  return region;
}

std::optional<SharedRegion> PeerArrays::say_region(const Arena& arena,
                                                   std::span<const Buffer> mine) {
  std::optional<SharedRegion> common;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    if (mine[i].count == 0) continue;  // nobody reads it
    const auto region = arena.shared_arrays()->find(mine[i]);
    if (!region || (common && common->number != region->number)) return std::nullopt;
    common = region;
    places(arena, arena.rank())[i].offset = static_cast<std::uint64_t>(
        static_cast<std::byte*>(mine[i].data) - region->part(region->rank));
  }
  return common;
}

std::byte* PeerArrays::at(int rank, std::size_t i, std::size_t begin,
                          std::size_t bytes) const {
  const SharedRegion& region = held_->region;
  const std::uint64_t offset = read_once(places(arena_, rank)[i].offset);
  if (offset > region.bytes || begin > region.bytes - offset ||
      bytes > region.bytes - offset - begin)
    throw arena_.nonsense_of(rank);
  return region.part(rank) + offset + begin;
}

void PeerArrays::read(int rank, std::size_t i, std::size_t begin, void* to,
                      std::size_t bytes) const {
  if (is_mapped())
    copy_bytes(to, at(rank, i, begin, bytes), bytes);
  else
    arena_.read_peer(rank, address(rank, i) + begin, to, bytes);
}

void PeerArrays::fetch(int rank, std::size_t i, const Buffer& to, Stores stores) const {
  const std::byte* here = nullptr;
  if (is_mapped())
    here = at(rank, i, 0, to.num_bytes());
  else if (rank == arena_.rank())
    here = static_cast<const std::byte*>(mine_[i].data);
  if (here != nullptr) {
    if (here != to.data) unpack(here, to, 0, to.count, stores);
    return;
  }
  arena_.read_peer(rank, address(rank, i), to);
}

}  // namespace allhands
