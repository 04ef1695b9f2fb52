// The table of ways for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace allhands::python {

void bind_ways(nanobind::module_& m);

}  // namespace allhands::python
