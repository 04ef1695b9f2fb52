#pragma once

#include <nanobind/nanobind.h>

namespace allhands::python {

// as_finalizer, for Python callables that run while objects are deleted.
void bind_finalizer(nanobind::module_& m);

}  // namespace allhands::python
