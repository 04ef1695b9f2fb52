#pragma once

#include <nanobind/nanobind.h>

#include <string_view>

#include "allhands/python/arguments.hpp"
#include "allhands/python/communicator.hpp"

namespace allhands::python {

// Of the collective of that name; null: there is none.
const Row* find_row(std::string_view name);

// Runs it now, None; with `async_op` queues it, its Work.
nanobind::object carry_out(PyCommunicator& self, const Row& row,
                           const Arguments& arguments, nanobind::handle timeout,
                           nanobind::handle async_op);

// A Request that runs it again and again.
nanobind::object make_request(PyCommunicator& self, const Row& row,
                              const Arguments& arguments, nanobind::handle timeout);

}  // namespace allhands::python
