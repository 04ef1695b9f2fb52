// Operations whose arrays are too large for every rank to tell all others, once the
// ranks have agreed.
//
// Within a host they go through its arena. Between hosts each slice of an array goes,
// by a schedule, between the ranks that have this slice, one on each host.
#pragma once

#include <vector>

#include "allhands/arena/operation.hpp"
#include "allhands/base/factor.hpp"
#include "allhands/hosts/crossing.hpp"

namespace allhands {

// The ranks' factors, if the operation has factors.
using Factors = std::vector<Factor>;

// output = op over all inputs. Each host's part is rounded, and then the result. It
// equals the result of one host if no host has two ranks, or in rank order.
void large_all_reduce(const Crossing& crossing, const Operation& operation,
                      const Factors& factors);
// The same into the root's array alone; each slice goes to the root's host only.
void large_reduce(const Crossing& crossing, const Operation& operation,
                  const Factors& factors);
void large_all_reduce_coalesced(const Crossing& crossing, const Operation& operation,
                                const Factors& factors);

// Every rank gets the others' contributions to its output, and reduces them; the bits
// are those of one host.
void large_reduce_scatter(const Crossing& crossing, const Operation& operation,
                          const Factors& factors);
void large_reduce_scatter_coalesced(const Crossing& crossing,
                                    const Operation& operation, const Factors& factors);

// These two copy directly from array to array.
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

// Goes piece by piece, each as a small operation.
void large_scan(const Crossing& crossing, const Operation& operation,
                const Factors& factors);

}  // namespace allhands
