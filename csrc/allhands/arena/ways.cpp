#include "allhands/arena/ways.hpp"

namespace allhands {

const char* name_of(Way way) {
  switch (way) {
    case Way::Mapped:
      return "mapped";
    case Way::Cooperative:
      return "cooperative";
    case Way::Read:
      return "read";
    case Way::Tree:
      return "tree";
    case Way::OnePhase:
      return "one phase";
    case Way::Slots:
      break;
  }
  return "slots";
}

}  // namespace allhands
