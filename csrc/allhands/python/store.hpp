#pragma once

#include <nanobind/nanobind.h>

namespace allhands::python {

// StoreServer and StoreClient, what allhands.store.tcp is made of.
void bind_store(nanobind::module_& m);

}  // namespace allhands::python
