#pragma once

#include <nanobind/nanobind.h>

namespace allhands::python {

// What engines of others need of this one: the checks of arguments, and the kernels.
void bind_checked_call(nanobind::module_& m);

}  // namespace allhands::python
