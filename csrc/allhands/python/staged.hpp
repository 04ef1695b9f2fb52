// Arrays in the memory of a device, which the core does not reach: StagedCommunicator
// of src/allhands/backends/staged.py copies them to the host and back.
#pragma once

#include <nanobind/nanobind.h>

#include "allhands/python/arguments.hpp"
#include "allhands/python/communicator.hpp"

namespace allhands::python {

// Whether an array was refused because it is in the memory of a device.
bool is_refused_as_device(const nanobind::python_error& error);

// The StagedCommunicator of `self`.
nanobind::object staged(PyCommunicator& self);

nanobind::object carry_out_staged(PyCommunicator& self, const CollectiveRow& row,
                                  const Arguments& arguments, nanobind::handle timeout,
                                  nanobind::handle async_op);

// Runs `native`; if its arrays are on a device, the method of the StagedCommunicator
// takes the arguments.
template <typename Native, typename... Given>
nanobind::object or_staged(PyCommunicator& self, Native native, const char* method,
                           const Given&... given) try {
  return native();
} catch (const nanobind::python_error& error) {
  if (!is_refused_as_device(error)) throw;
  return staged(self).attr(method)(given...);
}

}  // namespace allhands::python
