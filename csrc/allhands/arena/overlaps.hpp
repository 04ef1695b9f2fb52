// Operations whose outputs lie over their inputs.
//
// While an operation goes on, peers read a rank's inputs where they lie, or the rank
// stages them chunk by chunk, and outputs are written. So an input may be an output
// only where that is what the input's own place gets: in place. Everything else works
// on copies of the inputs.
#pragma once

#include <cstddef>
#include <vector>

#include "allhands/arena/operation.hpp"

namespace allhands {

// Whether `rank` would write to what is still to be read of its inputs.
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
