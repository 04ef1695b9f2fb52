#pragma once

#include <nanobind/nanobind.h>

#include <string_view>

#include "allhands/python/arguments.hpp"
#include "allhands/python/communicator.hpp"

namespace allhands::python {

// The row of the collective with that name; null: there is none.
const CollectiveRow* find_row(std::string_view name);

// Runs the collective now and returns None; with `async_op` queues it and returns its
// Work.
nanobind::object carry_out(PyCommunicator& self, const CollectiveRow& row,
                           const Arguments& arguments, nanobind::handle timeout,
                           nanobind::handle async_op);

// Returns a Request that runs the collective again and again.
nanobind::object make_request(PyCommunicator& self, const CollectiveRow& row,
                              const Arguments& arguments, nanobind::handle timeout);

}  // namespace allhands::python
