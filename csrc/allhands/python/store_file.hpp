// What a FileStore does with its file in every call, for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace allhands::python {

void bind_store_file(nanobind::module_& m);

}  // namespace allhands::python
