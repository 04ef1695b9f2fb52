// Operations whose arrays are too large to tell everybody, once the ranks have agreed.
//
// Within a host they go through its arena; between hosts each slice of an array goes
// between the ranks that have it there, one on each host, by a schedule.
#pragma once

#include <vector>

#include "allhands/arena/operation.hpp"
#include "allhands/base/factor.hpp"
#include "allhands/hosts/crossing.hpp"

namespace allhands {

// The ranks' factors, where the operation has them.
using Factors = std::vector<Factor>;

// output = op over all inputs. Exact within a rounding of each host's part and one of
// all: what one host would compute, if no host has two ranks, or in rank order.
void large_all_reduce(const Crossing& crossing, const Operation& operation,
                      const Factors& factors);
void large_reduce(const Crossing& crossing, const Operation& operation,
                  const Factors& factors);
void large_all_reduce_coalesced(const Crossing& crossing, const Operation& operation,
                                const Factors& factors);

// Every rank gets the others' contributions to its output, and reduces them: the bits
// of one host.
void large_reduce_scatter(const Crossing& crossing, const Operation& operation,
                          const Factors& factors);
void large_reduce_scatter_coalesced(const Crossing& crossing,
                                    const Operation& operation, const Factors& factors);

// From array to array.
void large_broadcast(const Crossing& crossing, const Operation& operation,
                     const Factors& factors);
void large_all_gather(const Crossing& crossing, const Operation& operation,
                      const Factors& factors);
void large_all_gather_coalesced(const Crossing& crossing, const Operation& operation,
                                const Factors& factors);
void large_gather(const Crossing& crossing, const Operation& operation,
                  const Factors& factors);
void large_scatter(const Crossing& crossing, const Operation& operation,
                   const Factors& factors);

// Piece by piece, each as a small operation.
void large_scan(const Crossing& crossing, const Operation& operation,
                const Factors& factors);

}  // namespace allhands
