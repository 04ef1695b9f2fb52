#pragma once

#include "allhands/python/communicator.hpp"

namespace allhands::python {

void bind_flight(CommunicatorClass& c);

}  // namespace allhands::python
