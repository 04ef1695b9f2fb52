#pragma once

#include <nanobind/nanobind.h>

namespace allhands::python {

void bind_communicator(nanobind::module_& m);

}  // namespace allhands::python
