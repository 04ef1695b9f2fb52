// MPI's all-reduce of usual arrays, called without the layers of mpi4py.
#pragma once

#include <nanobind/nanobind.h>

namespace allhands::python {

void bind_mpi_all_reduce(nanobind::module_& m);

}  // namespace allhands::python
