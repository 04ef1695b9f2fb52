#pragma once

#include "allhands/python/communicator.hpp"

namespace allhands::python {

void bind_flight_memory(nanobind::module_& m);
void bind_flight(CommunicatorClass& c);

}  // namespace allhands::python
