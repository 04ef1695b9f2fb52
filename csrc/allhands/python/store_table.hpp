// A store's table for Python: what HashStore and FileStore keep.
#pragma once

#include <nanobind/nanobind.h>

namespace allhands::python {

void bind_store_table(nanobind::module_& m);

}  // namespace allhands::python
