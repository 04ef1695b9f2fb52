#include "allhands/arena/collectives.hpp"

namespace allhands {

const Collective* collective_of(Op op) {
  for (const Collective* collective : kCollectives)
    if (collective->op == op) return collective;
  return nullptr;
}

}  // namespace allhands
