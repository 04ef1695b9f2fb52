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

using enum TaskKind;

constexpr Algorithm kAlgorithms[] = {
    {AllReduce, "gather", Order::Once, Parameter::Radix,
     [](int rank, const Task& t, std::size_t radix) {
       return gather_all_reduce(rank, t.size(), t.parts.total(),
                                static_cast<int>(radix));
     },
     estimates::gather_all_reduce},
    {AllReduce, "doubling", Order::Tree, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return doubling_all_reduce(rank, t.size(), t.parts.total());
     },
     estimates::doubling_all_reduce},
    {AllReduce, "halving", Order::Tree, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return halving_all_reduce(rank, t.size(), t.parts.total());
     },
     estimates::halving_all_reduce},
    {AllReduce, "circulant", Order::Rotated, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return all_reduce_of(rank, t.parts, circulant_reduce_scatter(rank, t.parts),
                            bruck_all_gather(rank, t.parts, 2));
     },
     estimates::circulant_all_reduce},
    {AllReduce, "pairwise", Order::Once, Parameter::AtOnce,
     [](int rank, const Task& t, std::size_t at_once) {
       return all_reduce_of(
           rank, t.parts,
           pairwise_reduce_scatter(rank, t.parts, static_cast<int>(at_once)),
           bruck_all_gather(rank, t.parts, 2));
     },
     estimates::pairwise_all_reduce},
    {AllReduce, "ring", Order::Rotated, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return all_reduce_of(rank, t.parts, ring_reduce_scatter(rank, t.parts),
                            ring_all_gather(rank, t.parts));
     },
     estimates::ring_all_reduce},
    {AllReduce, "chain", Order::Chain, Parameter::Chunk,
     [](int rank, const Task& t, std::size_t chunk) {
       return chain_all_reduce(rank, t.size(), t.parts.total(), chunk);
     },
     estimates::chain_all_reduce},

    {ReduceScatter, "circulant", Order::Rotated, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return circulant_reduce_scatter(rank, t.parts);
     },
     estimates::circulant_reduce_scatter},
    {ReduceScatter, "pairwise", Order::Once, Parameter::AtOnce,
     [](int rank, const Task& t, std::size_t at_once) {
       return pairwise_reduce_scatter(rank, t.parts, static_cast<int>(at_once));
     },
     estimates::pairwise_reduce_scatter},
    {ReduceScatter, "ring", Order::Rotated, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return ring_reduce_scatter(rank, t.parts);
     },
     estimates::ring_reduce_scatter},

    {AllGather, "bruck", Order::None, Parameter::Radix,
     [](int rank, const Task& t, std::size_t radix) {
       return bruck_all_gather(rank, t.parts, static_cast<int>(radix));
     },
     estimates::bruck_all_gather},
    {AllGather, "ring", Order::None, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return ring_all_gather(rank, t.parts);
     },
     estimates::ring_all_gather},

    {Broadcast, "binomial", Order::None, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return binomial_broadcast(rank, t.size(), t.root, t.parts.total());
     },
     estimates::binomial_broadcast},
    {Broadcast, "direct", Order::None, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return direct_broadcast(rank, t.size(), t.root, t.parts.total());
     },
     estimates::direct_broadcast},
    {Broadcast, "parts-bruck", Order::None, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return broadcast_of(rank, t.root, t.parts,
                           binomial_scatter(rank, t.root, t.parts),
                           bruck_all_gather(rank, t.parts, 2));
     },
     estimates::scatter_bruck_broadcast},
    {Broadcast, "parts-ring", Order::None, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return broadcast_of(rank, t.root, t.parts,
                           binomial_scatter(rank, t.root, t.parts),
                           ring_all_gather(rank, t.parts));
     },
     estimates::scatter_ring_broadcast},
    {Broadcast, "chain", Order::None, Parameter::Chunk,
     [](int rank, const Task& t, std::size_t chunk) {
       return chain_broadcast(rank, t.size(), t.root, t.parts.total(), chunk);
     },
     estimates::chain_broadcast},

    {Reduce, "gather", Order::Once, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return gather_reduce(rank, t.size(), t.root, t.parts.total());
     },
     estimates::gather_reduce},
    {Reduce, "direct", Order::Once, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return direct_reduce(rank, t.size(), t.root, t.parts.total());
     },
     estimates::direct_reduce},
    {Reduce, "binomial", Order::Rotated, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return binomial_reduce(rank, t.size(), t.root, t.parts.total());
     },
     estimates::binomial_reduce},
    {Reduce, "circulant", Order::Rotated, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return reduce_of(rank, t.root, t.parts, circulant_reduce_scatter(rank, t.parts),
                        binomial_gather(rank, t.root, t.parts));
     },
     estimates::circulant_reduce},
    {Reduce, "pairwise", Order::Once, Parameter::AtOnce,
     [](int rank, const Task& t, std::size_t at_once) {
       return reduce_of(
           rank, t.root, t.parts,
           pairwise_reduce_scatter(rank, t.parts, static_cast<int>(at_once)),
           binomial_gather(rank, t.root, t.parts));
     },
     estimates::pairwise_reduce},
    {Reduce, "chain", Order::Chain, Parameter::Chunk,
     [](int rank, const Task& t, std::size_t chunk) {
       return chain_reduce(rank, t.size(), t.root, t.parts.total(), chunk);
     },
     estimates::chain_reduce},

    {Gather, "binomial", Order::None, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return binomial_gather(rank, t.root, t.parts);
     },
     estimates::binomial_gather},
    {Gather, "direct", Order::None, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return direct_gather(rank, t.root, t.parts);
     },
     estimates::direct_gather},

    {Scatter, "binomial", Order::None, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return binomial_scatter(rank, t.root, t.parts);
     },
     estimates::binomial_scatter},
    {Scatter, "direct", Order::None, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return direct_scatter(rank, t.root, t.parts);
     },
     estimates::direct_gather},

    {AllToAll, "bruck", Order::None, Parameter::None,
     [](int rank, const Task& t, std::size_t) {
       return bruck_all_to_all(rank, t.size(), t.parts.count(0));
     },
     estimates::bruck_all_to_all},
    {AllToAll, "pairwise", Order::None, Parameter::AtOnce,
     [](int rank, const Task& t, std::size_t at_once) {
       return pairwise_all_to_all(rank, t.parts, t.parts, static_cast<int>(at_once));
     },
     estimates::pairwise_all_to_all},

    {Barrier, "dissemination", Order::None, Parameter::Radix,
     [](int rank, const Task& t, std::size_t radix) {
       return dissemination_barrier(rank, t.size(), static_cast<int>(radix));
     },
     estimates::dissemination_barrier},
};

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

}  // namespace allhands
