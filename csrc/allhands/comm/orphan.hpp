// A segment that nobody hands out any more: the rank that made it died, or is done with
// the group, before every rank had it. The ranks that have it go on with it, so one
// that comes late needs the same, not a new one in which it would wait for them, and
// they for it.
#pragma once

#include <string>

#include "allhands/base/fd.hpp"
#include "allhands/host/membership.hpp"

namespace allhands {

// The descriptor of a segment of this name that a living peer has. A closed one: nobody
// has it. Throws Backend where this process has no descriptor left to look with.
Fd find_orphan(const Membership& membership, const std::string& name);

}  // namespace allhands
