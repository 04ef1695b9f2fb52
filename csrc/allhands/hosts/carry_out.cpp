#include "allhands/hosts/carry_out.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "allhands/arena/collectives.hpp"
#include "allhands/arena/overlaps.hpp"
#include "allhands/hosts/agreement.hpp"
#include "allhands/hosts/all_reduce_sparse.hpp"
#include "allhands/hosts/all_to_all.hpp"
#include "allhands/hosts/large.hpp"
#include "allhands/hosts/small.hpp"

namespace allhands {
namespace {

// How an operation runs that is too large for every rank to tell all others its arrays.
struct LargeForm {
  Op op;
  void (*run)(const Crossing&, const Operation&, const Factors&);
};

constexpr LargeForm kLargeForms[] = {
    {Op::AllReduce, large_all_reduce},
    {Op::Reduce, large_reduce},
    {Op::ReduceScatter, large_reduce_scatter},
    {Op::Broadcast, large_broadcast},
    {Op::AllGather, large_all_gather},
    {Op::Gather, large_gather},
    {Op::Scatter, large_scatter},
    {Op::Scan, large_scan},
    {Op::Exscan, large_scan},
    {Op::AllReduceCoalesced, large_all_reduce_coalesced},
    {Op::AllGatherCoalesced, large_all_gather_coalesced},
    {Op::ReduceScatterCoalesced, large_reduce_scatter_coalesced},
};

// Makes all ranks agree. Returns the factors of all, if the operation has factors.
Factors agree_on(const Crossing& crossing, const Operation& operation) {
  Bytes mine;
  const bool has_factor = allhands::has_factor(operation);
  if (has_factor) append(mine, &operation.factor, 1);
  const Contributions told =
      agree(crossing, operation.collective->descriptor(operation), mine);
  Factors factors(static_cast<std::size_t>(crossing.group.size()));
  for (int rank = 0; has_factor && rank < crossing.group.size(); ++rank) {
    if (told.of(rank).size() != sizeof(Factor)) throw nonsense_of(crossing, rank);
    std::memcpy(&factors[static_cast<std::size_t>(rank)], told.of(rank).data(),
                sizeof(Factor));
  }
  return factors;
}

void run_large(const Crossing& crossing, const Operation& operation) {
  const Factors factors = agree_on(crossing, operation);
  const LargeForm& form =
      *std::ranges::find(kLargeForms, operation.collective->op, &LargeForm::op);
  if (writes_own_inputs(operation, crossing.group.rank))
    form.run(crossing, CopiedInputs(operation).operation(), factors);
  else
    form.run(crossing, operation, factors);
}

}  // namespace

void carry_out(const Crossing& crossing, const Operation& operation) {
  if (operation.collective->op == Op::AllToAll) return all_to_all(crossing, operation);
  if (operation.collective->op == Op::AllReduceSparse)
    return all_reduce_sparse(crossing, operation);
  const bool is_reduction = operation.collective->is_reduction;
  const std::size_t most = is_reduction ? kSmallBytes : kSmallCopiedBytes;
  if (told_bytes(operation, crossing.group.size()) > most)
    run_large(crossing, operation);
  else
    run_small(crossing, operation);
}

}  // namespace allhands
