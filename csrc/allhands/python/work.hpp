#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "allhands/base/deadline.hpp"
#include "allhands/comm/communicator.hpp"

namespace allhands::python {

// What a timeout of so many seconds means in the core.
Deadline::Duration duration_of(double seconds);

// The Python object for a queued collective.
nanobind::object wrap(std::shared_ptr<Work> work);
// The Python object for a posted transfer; keeps its communicator alive.
nanobind::object wrap(TransferPtr transfer, ProgressEngine& engine,
                      nanobind::object communicator);

void bind_work(nanobind::module_& m);

}  // namespace allhands::python
