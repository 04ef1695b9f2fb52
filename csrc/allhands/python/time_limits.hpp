// Time limits as callers pass them.
#pragma once

#include <nanobind/nanobind.h>

#include "allhands/base/wait.hpp"

namespace allhands::python {

// Converts a number of seconds to the core's unit.
Deadline::Duration duration_of(double seconds);
// Converts a timedelta. Throws TypeError for anything else and ValueError for a
// negative one.
Deadline::Duration duration_of(nanobind::handle timeout);

// The limits of a wait in a Python thread: a timedelta; None or zero mean no limit.
Limits limits_of_wait(nanobind::handle timeout);

}  // namespace allhands::python
