// Operations whose outputs lie over their inputs.
//
// While an operation runs, peers read a rank's inputs in place, or the rank stages them
// chunk by chunk, and outputs are written meanwhile. So an input may be an output only
// if the result belongs exactly where that input lies: an in-place operation. All other
// overlapping operations work on copies of the inputs.
#pragma once

#include <cstddef>
#include <vector>

#include "allhands/arena/operation.hpp"

namespace allhands {

// Whether `rank` would write to a part of its inputs that is still to be read.
bool writes_own_inputs(const Operation& operation, int rank);

// An operation on copies of the inputs of another one, whose outputs it writes.
class CopiedInputs {
 public:
  explicit CopiedInputs(const Operation& operation);

  const Operation& operation() const { return operation_; }

 private:
  void copy(Buffer& input, std::size_t at);

  Operation operation_;
  std::vector<std::byte> memory_;
};

}  // namespace allhands
