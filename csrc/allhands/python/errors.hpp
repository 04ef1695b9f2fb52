#pragma once

#include <nanobind/nanobind.h>

#include <exception>

#include "allhands/base/error.hpp"
#include "allhands/python/gil.hpp"

namespace allhands::python {

// The exception object for `error`, with its `ranks`.
nanobind::object to_exception(const Error& error);
// The exception object for any C++ exception; None for null.
nanobind::object to_exception(const std::exception_ptr& error);

// Sets the Python exception for a C++ exception. If a signal arrives meanwhile, sets
// what the signal's handler raised instead.
void raise(const std::exception_ptr& pending) noexcept;

// Runs `body` with the GIL where nothing can catch what the Python code of `raiser`
// raises; the interpreter reports that. Ctrl-C was not meant for that code, so it
// interrupts the main thread once more. An exception that the thread is already raising
// stays.
template <class Body>
void run_unraisable(nanobind::handle raiser, Body body) noexcept {
  const GilHeld gil;
  const nanobind::error_scope pending;
  try {
    unless_ended(body);
  } catch (nanobind::python_error& error) {
    const bool is_interrupt = error.matches(PyExc_KeyboardInterrupt);
    error.discard_as_unraisable(raiser);
    if (is_interrupt) PyErr_SetInterrupt();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    PyErr_WriteUnraisable(raiser.ptr());
  }
}

// Registers the translation of allhands::Error into the classes of allhands.errors.
void bind_errors(nanobind::module_& m);

// An Interrupt for calls made with the GIL released: lets Python signal handlers run.
bool python_interrupt();

}  // namespace allhands::python
