#include "allhands/comm/select.hpp"

#include <array>
#include <iterator>

namespace allhands {
namespace {

constexpr auto kAlways = [](const Case&, const Tuning&) { return true; };

// The meeting at which ranks learn that their arrays are shared costs more than the
// copies through the slots below some size.
constexpr auto kIsMapped = [](const Case& c, const Tuning& t) {
  return c.has_shared_arrays && c.bytes >= t.direct_bytes;
};

constexpr auto kIsPassedDown = [](const Case& c, const Tuning& t) {
  return c.bytes <= kInlineBytes && t.are_many(c.ranks);
};

constexpr auto kIsReduced = [](const Case& c, const Tuning& t) {
  return c.all() <= t.one_phase_bytes;
};

bool is_read(const Case& c, std::size_t bytes, std::uint64_t least) {
  return c.can_read_peers && c.ranks > 1 && bytes >= least;
}

constexpr char kMapped[] = "shared arrays need no staging, once they repay a meeting";
constexpr char kTree[] =
    "one of many ranks reduces: the others get the result with the word that all are "
    "here";
constexpr char kOnePhase[] = "small inputs: reducing all of them beats a second phase";
constexpr char kSlots[] = "through the slots, which stay in the caches";

constexpr WayChoice kChoices[] = {
    {Op::AllReduce, Way::Mapped, kIsMapped, kMapped},
    {Op::AllReduce, Way::Read,
     [](const Case& c, const Tuning& t) {
       return is_read(c, c.bytes, t.read_reduce_bytes) &&
              2 * c.bytes < t.read_most_bytes;
     },
     "inputs and results are read where they lie: slots of this size exceed the "
     "caches"},
    {Op::AllReduce, Way::Tree, kIsPassedDown, kTree},
    {Op::AllReduce, Way::OnePhase, kIsReduced, kOnePhase},
    {Op::AllReduce, Way::Slots, kAlways, kSlots},

    {Op::AllReduceCoalesced, Way::Tree, kIsPassedDown, kTree},
    {Op::AllReduceCoalesced, Way::OnePhase, kIsReduced, kOnePhase},
    {Op::AllReduceCoalesced, Way::Slots, kAlways, kSlots},

    {Op::Reduce, Way::Mapped, kIsMapped, kMapped},
    {Op::Reduce, Way::OnePhase, kIsReduced, kOnePhase},
    {Op::Reduce, Way::Slots, kAlways, kSlots},

    {Op::ReduceScatter, Way::Mapped, kIsMapped, kMapped},
    {Op::ReduceScatter, Way::Read,
     [](const Case& c, const Tuning& t) {
       return is_read(c, c.bytes, t.read_reduce_scatter_bytes) &&
              c.bytes < t.read_most_bytes;
     },
     "each rank reads its part once, which nobody has just written"},
    {Op::ReduceScatter, Way::Slots, kAlways, kSlots},

    {Op::Broadcast, Way::Mapped, kIsMapped, kMapped},
    {Op::Broadcast, Way::Cooperative,
     [](const Case& c, const Tuning& t) {
       return c.ranks == 2 && is_read(c, c.bytes, t.read_rooted_bytes);
     },
     "the root would wait while the other rank copies: each copies half"},
    {Op::Broadcast, Way::Read,
     [](const Case& c, const Tuning& t) {
       return c.ranks > 2 && is_read(c, c.bytes, t.read_broadcast_bytes) &&
              c.bytes < t.read_most_bytes;
     },
     "one copy instead of two"},
    {Op::Broadcast, Way::Slots, kAlways, kSlots},

    {Op::AllGather, Way::Mapped, kIsMapped, kMapped},
    {Op::AllGather, Way::Read,
     [](const Case& c, const Tuning& t) {
       return is_read(c, c.bytes, t.read_bytes) && c.all() < t.read_most_bytes;
     },
     "one copy instead of two"},
    {Op::AllGather, Way::Slots, kAlways, kSlots},

    {Op::Gather, Way::Mapped, kIsMapped, kMapped},
    {Op::Gather, Way::Cooperative,
     [](const Case& c, const Tuning& t) {
       return is_read(c, c.bytes, t.read_rooted_bytes);
     },
     "the others would wait while the root copies: each copies half of its own"},
    {Op::Gather, Way::Slots, kAlways, kSlots},

    {Op::Scatter, Way::Mapped, kIsMapped, kMapped},
    {Op::Scatter, Way::Read,
     [](const Case& c, const Tuning& t) {
       return is_read(c, c.all() - c.bytes, t.read_rooted_bytes) &&
              c.bytes < t.read_most_bytes;
     },
     "the root need not stage what it sends to the others"},
    {Op::Scatter, Way::Slots, kAlways, kSlots},

    {Op::AllToAll, Way::Mapped,
     [](const Case& c, const Tuning&) { return c.has_shared_arrays; },
     "shared arrays need no staging; the ranks learn the sizes only there"},
    {Op::AllToAll, Way::Read,
     [](const Case& c, const Tuning& t) {
       return is_read(c, c.bytes, t.read_all_to_all_bytes) &&
              (c.bytes == Case::kUnknown || c.bytes < t.read_most_all_to_all_bytes);
     },
     "one copy instead of two; share by share, as the sender knows their sizes"},
    {Op::AllToAll, Way::Slots, kAlways, kSlots},
};

// Where the rows of an operation begin.
constexpr const WayChoice* first_of(Op op) {
  for (const WayChoice& choice : kChoices)
    if (choice.op == op) return &choice;
  return std::end(kChoices);
}

constexpr auto kFirst = [] {
  std::array<const WayChoice*, 256> first{};
  for (std::size_t op = 0; op < first.size(); ++op)
    first[op] = first_of(static_cast<Op>(op));
  return first;
}();

}  // namespace

std::span<const WayChoice> choices() { return kChoices; }

Ways select(const Case& c, const Tuning& tuning) {
  Ways ways;
  const WayChoice* choice = kFirst[static_cast<std::size_t>(c.op)];
  for (; choice != std::end(kChoices) && choice->op == c.op; ++choice)
    if (choice->is_worth(c, tuning)) {
      ways.add(choice->way);
      if (choice->way >= Way::Tree) break;
    }
  if (c.op == Op::AllToAll && ways.may(Way::Read)) {
    const auto ranks = static_cast<std::uint64_t>(c.ranks);
    ways.least_share = (tuning.read_all_to_all_bytes + ranks - 1) / ranks;
    ways.most_share = (tuning.read_most_all_to_all_bytes + ranks - 1) / ranks;
  }
  return ways;
}

Stores stores_for(std::size_t bytes, const Tuning& tuning) {
  return bytes < tuning.stream_bytes ? Stores::Cached : Stores::Streaming;
}

}  // namespace allhands
