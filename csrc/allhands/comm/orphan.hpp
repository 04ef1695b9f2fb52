// A segment that nobody hands out any more: the rank that made it died, or is done with
// the group, before every rank had it. The ranks that have it go on with it. So a rank
// that comes late needs the same segment. In a new one it would wait for the others,
// and they for it.
#pragma once

#include <string>

#include "allhands/base/fd.hpp"
#include "allhands/host/membership.hpp"

namespace allhands {

// The file descriptor of a segment of this name that a living peer has; a closed Fd if
// nobody has it. Throws Backend if this process has no free descriptor to search with.
Fd find_orphan(const Membership& membership, const std::string& name);

}  // namespace allhands
