#include "allhands/comm/orphan.hpp"

#include <fcntl.h>

#include "allhands/base/memory_of.hpp"

namespace allhands {

Fd find_orphan(const Membership& membership, const std::string& name) {
  for (int peer = 0; peer < membership.size(); ++peer) {
    if (peer == membership.rank) continue;
    // Only the group knows the name. So this is the right segment, whichever process
    // has that pid now.
    if (Fd found = open_memory_of(membership.process(peer).pid, name, O_RDWR);
        found.is_open())
      return found;
  }
  return Fd();
}

}  // namespace allhands
