// The records of FileStore's file for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace allhands::python {

void bind_store_record(nanobind::module_& m);

}  // namespace allhands::python
