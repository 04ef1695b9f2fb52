#include "allhands/hosts/carry_out.hpp"

#include "allhands/arena/collectives.hpp"
#include "allhands/hosts/all_reduce_sparse.hpp"
#include "allhands/hosts/all_to_all.hpp"
#include "allhands/hosts/small.hpp"

namespace allhands {

void carry_out(const Crossing& crossing, const Operation& operation) {
  switch (operation.collective->op) {
    case Op::AllToAll:
      return all_to_all(crossing, operation);
    case Op::AllReduceSparse:
      return all_reduce_sparse(crossing, operation);
    default:
      return run_small(crossing, operation);
  }
}

}  // namespace allhands
