#pragma once

#include <nanobind/nanobind.h>

namespace allhands::python {

// Registers the translation of allhands::Error into the classes of allhands.errors.
void bind_errors(nanobind::module_& m);

// An Interrupt for calls made with the GIL released: lets Python signal handlers run.
bool python_interrupt();

}  // namespace allhands::python
