#include "allhands/arena/collectives.hpp"

namespace allhands {

void barrier(Arena& arena, const Limits& limits) {
  Descriptor descriptor;
  descriptor.op = Op::Barrier;
  arena.begin(descriptor, limits);
  arena.enter();
}

}  // namespace allhands
