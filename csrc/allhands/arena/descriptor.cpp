#include "allhands/arena/descriptor.hpp"

namespace allhands {

const char* name_of(Op op) {
  switch (op) {
    case Op::AllReduce:
      return "all_reduce";
    case Op::Broadcast:
      return "broadcast";
    case Op::AllGather:
      return "all_gather";
    case Op::Barrier:
      return "barrier";
    case Op::None:
      break;
  }
  return "nothing";
}

std::string describe(const Descriptor& descriptor) {
  std::string text = name_of(descriptor.op);
  if (descriptor.op == Op::Barrier) return text + "()";
  text += std::string("(") + name_of(descriptor.dtype) + ", count " +
          std::to_string(descriptor.count);
  if (descriptor.op == Op::AllReduce)
    text += std::string(", ") + name_of(descriptor.reduce_op);
  if (descriptor.root >= 0) text += ", root " + std::to_string(descriptor.root);
  return text + ")";
}

}  // namespace allhands
