#pragma once

#include "allhands/python/communicator.hpp"

namespace allhands::python {

void bind_sparse_array(nanobind::module_& m);
void bind_sparse(CommunicatorClass& c);

// What `all_reduce` does with an array that is no memory but has parts: calls the
// method all_reduce_sparse of the class in Python.
nanobind::object carry_out_sparse(PyCommunicator& self, nanobind::handle array,
                                  nanobind::handle op, nanobind::handle timeout,
                                  nanobind::handle async_op);
// Whether the array was refused because it is sparse.
bool is_refused_as_sparse(const nanobind::python_error& error);

}  // namespace allhands::python
