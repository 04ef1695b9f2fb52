// What a rank says it is entering. Ranks compare these on every operation, so a program
// whose ranks call different things is told so instead of computing nonsense.
#pragma once

#include <cstdint>
#include <string>

#include "allhands/base/dtype.hpp"
#include "allhands/base/reduce_op.hpp"

namespace allhands {

enum class Op : std::uint8_t { None, AllReduce, Broadcast, AllGather, Barrier };

// torch.distributed's name of the call.
const char* name_of(Op op);

struct Descriptor {
  Op op = Op::None;
  DType dtype = DType::UInt8;
  ReduceOp reduce_op = ReduceOp::Sum;
  std::uint8_t reserved = 0;
  std::int32_t root = -1;   // rank in the group; -1 where the operation has none
  std::uint64_t count = 0;  // elements this rank contributes

  bool operator==(const Descriptor&) const = default;
};
static_assert(sizeof(Descriptor) == 16, "fits beside the clock in a cache line");

// "all_reduce(float32, count 10, SUM)"
std::string describe(const Descriptor& descriptor);

}  // namespace allhands
