#pragma once

#include <nanobind/nanobind.h>

#include <exception>

#include "allhands/base/error.hpp"

namespace allhands::python {

// The exception object that stands for `error`, with its `ranks`.
nanobind::object to_exception(const Error& error);
// That of any C++ exception; None for none.
nanobind::object to_exception(const std::exception_ptr& error);

// Sets the Python exception that stands for a C++ one.
// Where a signal arrives meanwhile, what its handler raised instead.
void raise(const std::exception_ptr& pending) noexcept;

// Registers the translation of allhands::Error into the classes of allhands.errors.
void bind_errors(nanobind::module_& m);

// An Interrupt for calls made with the GIL released: lets Python signal handlers run.
bool python_interrupt();

}  // namespace allhands::python
