#pragma once

#include <nanobind/nanobind.h>

namespace allhands::python {

// What engines of others need of this one: arguments checked as here, and its kernels.
void bind_checked_call(nanobind::module_& m);

}  // namespace allhands::python
