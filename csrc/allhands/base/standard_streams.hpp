// The descriptors 0, 1 and 2 of a process that was started without some of them, as by
// `program >&-` or a daemon.
#pragma once

namespace allhands {

// Opens /dev/null at each of the three that is closed.
//
// Otherwise the next socket or shared memory gets such a number, and what somebody
// writes to stderr goes into it.
void hold_standard_streams();

}  // namespace allhands
