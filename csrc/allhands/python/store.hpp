#pragma once

#include <nanobind/nanobind.h>

namespace allhands::python {

// StoreServer, StoreRelay and StoreClient, which allhands.store.tcp is built on.
void bind_store(nanobind::module_& m);

}  // namespace allhands::python
