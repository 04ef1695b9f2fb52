// How long algorithms take by the model of Costs: formulas, in place of a simulation
// that runs the schedules of all participants. All links are equal, and all
// participants begin at the same time.
#pragma once

#include <cstddef>

#include "allhands/algorithms/costs.hpp"

namespace allhands {

// The values that an estimate depends on.
struct Load {
  Costs costs;
  int size;           // number of participants
  double bytes;       // of all parts together
  double part;        // of the largest part
  std::size_t value;  // of the algorithm's parameter
  double chunk;       // in bytes, if that is the parameter
};

// In seconds, until the last participant has ended.
using Estimate = double (*)(const Load& load);

namespace estimates {

double gather_all_reduce(const Load& load);
double doubling_all_reduce(const Load& load);
double halving_all_reduce(const Load& load);
double circulant_all_reduce(const Load& load);
double pairwise_all_reduce(const Load& load);
double ring_all_reduce(const Load& load);
double chain_all_reduce(const Load& load);

double circulant_reduce_scatter(const Load& load);
double pairwise_reduce_scatter(const Load& load);
double ring_reduce_scatter(const Load& load);

double bruck_all_gather(const Load& load);
double ring_all_gather(const Load& load);

double binomial_broadcast(const Load& load);
double scatter_bruck_broadcast(const Load& load);
double scatter_ring_broadcast(const Load& load);
double direct_broadcast(const Load& load);
double chain_broadcast(const Load& load);

double gather_reduce(const Load& load);
double direct_reduce(const Load& load);
double binomial_reduce(const Load& load);
double circulant_reduce(const Load& load);
double pairwise_reduce(const Load& load);
double chain_reduce(const Load& load);

double binomial_gather(const Load& load);
double binomial_scatter(const Load& load);
double direct_gather(const Load& load);  // and scatter

double bruck_all_to_all(const Load& load);
double pairwise_all_to_all(const Load& load);

double dissemination_barrier(const Load& load);

}  // namespace estimates

// How many messages of at most this many bytes a participant should send at the same
// time, each to another one. With many large ones, messages of several participants
// meet on one link.
int most_at_once(double bytes);

// The best value for a chain's chunk, in bytes, or for the number of simultaneous
// exchanges of a pairwise algorithm.
double best_chunk_of_broadcast(const Load& load);
double best_chunk_of_reduction(const Load& load);
std::size_t best_at_once(const Load& load);

}  // namespace allhands
