#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "allhands/comm/communicator.hpp"

namespace allhands::python {

// The allhands.Work of a queued collective with that time limit, which reads arrays of
// type `read` and writes `outputs`. Keeps its communicator alive.
nanobind::object wrap(std::shared_ptr<Work> work, Deadline::Duration limit,
                      nanobind::object communicator, nanobind::list outputs,
                      nanobind::object read);
// The Work of a posted transfer. Keeps its communicator alive.
nanobind::object wrap(TransferPtr transfer, nanobind::object communicator,
                      nanobind::list outputs);

void bind_work(nanobind::module_& m);

}  // namespace allhands::python
