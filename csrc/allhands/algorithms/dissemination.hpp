// The dissemination barrier (Hensgen, Finkel & Manber, 1988): in each round a
// participant tells others that all participants have come of which it knows that they
// have.
//
// ceil(log_radix size) rounds of radix - 1 messages without elements; with a radix of
// `size` or more one round, in which each participant tells each.
#pragma once

#include "allhands/algorithms/schedule.hpp"

namespace allhands {

Schedule dissemination_barrier(int rank, int size, int radix);

}  // namespace allhands
