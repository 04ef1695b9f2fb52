#include "allhands/algorithms/algorithm.hpp"

#include "allhands/algorithms/binomial.hpp"
#include "allhands/algorithms/bruck.hpp"
#include "allhands/algorithms/chain.hpp"
#include "allhands/algorithms/composition.hpp"
#include "allhands/algorithms/direct.hpp"
#include "allhands/algorithms/dissemination.hpp"
#include "allhands/algorithms/pairwise.hpp"
#include "allhands/algorithms/recursive.hpp"
#include "allhands/algorithms/ring.hpp"

namespace allhands {
namespace {

using enum Collective;

constexpr Algorithm kAlgorithms[] = {
    {AllReduce, "gather", Order::Once, Parameter::Radix,
     [](int rank, const Task& t, std::size_t radix) {
       return gather_all_reduce(rank, t.size(), t.parts.total(),
                                static_cast<int>(radix));
     }},
    {AllReduce, "doubling", Order::Tree, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return doubling_all_reduce(rank, t.size(), t.parts.total());
     }},
    {AllReduce, "halving", Order::Tree, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return halving_all_reduce(rank, t.size(), t.parts.total());
     }},
    {AllReduce, "circulant", Order::Rotated, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return all_reduce_of(rank, t.parts, circulant_reduce_scatter(rank, t.parts),
                            bruck_all_gather(rank, t.parts, 2));
     }},
    {AllReduce, "pairwise", Order::Once, Parameter::AtOnce,
     [](int rank, const Task& t, std::size_t at_once) {
       return all_reduce_of(
           rank, t.parts,
           pairwise_reduce_scatter(rank, t.parts, static_cast<int>(at_once)),
           bruck_all_gather(rank, t.parts, 2));
     }},
    {AllReduce, "ring", Order::Rotated, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return all_reduce_of(rank, t.parts, ring_reduce_scatter(rank, t.parts),
                            ring_all_gather(rank, t.parts));
     }},
    {AllReduce, "chain", Order::Chain, Parameter::Chunk,
     [](int rank, const Task& t, std::size_t chunk) {
       return chain_all_reduce(rank, t.size(), t.parts.total(), chunk);
     }},

    {ReduceScatter, "circulant", Order::Rotated, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return circulant_reduce_scatter(rank, t.parts);
     }},
    {ReduceScatter, "pairwise", Order::Once, Parameter::AtOnce,
     [](int rank, const Task& t, std::size_t at_once) {
       return pairwise_reduce_scatter(rank, t.parts, static_cast<int>(at_once));
     }},
    {ReduceScatter, "ring", Order::Rotated, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return ring_reduce_scatter(rank, t.parts);
     }},

    {AllGather, "bruck", Order::None, Parameter::Radix,
     [](int rank, const Task& t, std::size_t radix) {
       return bruck_all_gather(rank, t.parts, static_cast<int>(radix));
     }},
    {AllGather, "ring", Order::None, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return ring_all_gather(rank, t.parts);
     }},

    {Broadcast, "binomial", Order::None, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return binomial_broadcast(rank, t.size(), t.root, t.parts.total());
     }},
    {Broadcast, "scatter and bruck", Order::None, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return broadcast_of(rank, t.root, t.parts,
                           binomial_scatter(rank, t.root, t.parts),
                           bruck_all_gather(rank, t.parts, 2));
     }},
    {Broadcast, "scatter and ring", Order::None, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return broadcast_of(rank, t.root, t.parts,
                           binomial_scatter(rank, t.root, t.parts),
                           ring_all_gather(rank, t.parts));
     }},
    {Broadcast, "chain", Order::None, Parameter::Chunk,
     [](int rank, const Task& t, std::size_t chunk) {
       return chain_broadcast(rank, t.size(), t.root, t.parts.total(), chunk);
     }},

    {Reduce, "gather", Order::Once, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return gather_reduce(rank, t.size(), t.root, t.parts.total());
     }},
    {Reduce, "binomial", Order::Rotated, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return binomial_reduce(rank, t.size(), t.root, t.parts.total());
     }},
    {Reduce, "circulant", Order::Rotated, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return reduce_of(rank, t.root, t.parts, circulant_reduce_scatter(rank, t.parts),
                        binomial_gather(rank, t.root, t.parts));
     }},
    {Reduce, "pairwise", Order::Once, Parameter::AtOnce,
     [](int rank, const Task& t, std::size_t at_once) {
       return reduce_of(
           rank, t.root, t.parts,
           pairwise_reduce_scatter(rank, t.parts, static_cast<int>(at_once)),
           binomial_gather(rank, t.root, t.parts));
     }},
    {Reduce, "chain", Order::Chain, Parameter::Chunk,
     [](int rank, const Task& t, std::size_t chunk) {
       return chain_reduce(rank, t.size(), t.root, t.parts.total(), chunk);
     }},

    {Gather, "binomial", Order::None, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return binomial_gather(rank, t.root, t.parts);
     }},
    {Gather, "direct", Order::None, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return direct_gather(rank, t.root, t.parts);
     }},

    {Scatter, "binomial", Order::None, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return binomial_scatter(rank, t.root, t.parts);
     }},
    {Scatter, "direct", Order::None, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return direct_scatter(rank, t.root, t.parts);
     }},

    {AllToAll, "bruck", Order::None, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return bruck_all_to_all(rank, t.size(), t.parts.count(0));
     }},
    {AllToAll, "pairwise", Order::None, Parameter::AtOnce,
     [](int rank, const Task& t, std::size_t at_once) {
       return pairwise_all_to_all(rank, t.parts, t.parts, static_cast<int>(at_once));
     }},

    {Barrier, "dissemination", Order::None, Parameter::Radix,
     [](int rank, const Task& t, std::size_t radix) {
       return dissemination_barrier(rank, t.size(), static_cast<int>(radix));
     }},
};

}  // namespace

std::size_t Task::input_count(int rank) const {
  switch (collective) {
    case AllGather:
    case Gather:
      return parts.count(rank);
    case Broadcast:
    case Scatter:
      return rank == root ? parts.total() : 0;
    case Barrier:
      return 0;
    default:
      return parts.total();
  }
}

std::size_t Task::output_count(int rank) const {
  switch (collective) {
    case ReduceScatter:
    case Scatter:
      return parts.count(rank);
    case Broadcast:
      return rank == root ? 0 : parts.total();
    case Reduce:
    case Gather:
      return rank == root ? parts.total() : 0;
    case Barrier:
      return 0;
    default:
      return parts.total();
  }
}

std::span<const Algorithm> algorithms() { return kAlgorithms; }

}  // namespace allhands
