#pragma once

#include <nanobind/nanobind.h>

namespace allhands::python {

void bind_interfaces(nanobind::module_& m);

}  // namespace allhands::python
