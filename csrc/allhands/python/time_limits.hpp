// Time limits as callers pass them.
#pragma once

#include <nanobind/nanobind.h>

#include "allhands/base/wait.hpp"

namespace allhands::python {

// A number of seconds, in the core's unit.
Deadline::Duration duration_of(double seconds);
// A timedelta. Throws TypeError for anything else and ValueError for a negative one.
Deadline::Duration duration_of(nanobind::handle timeout);

// Of a wait in a Python thread: a timedelta; None or zero for no limit.
Limits limits_of_wait(nanobind::handle timeout);

}  // namespace allhands::python
