// TcpPort: where a process listens for processes of other hosts.
#pragma once

#include <nanobind/nanobind.h>

namespace allhands::python {

void bind_port(nanobind::module_& m);

}  // namespace allhands::python
