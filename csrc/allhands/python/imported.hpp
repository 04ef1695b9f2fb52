#pragma once

#include <nanobind/nanobind.h>

namespace allhands::python {

// Attribute `name` of a Python module. The reference is never released: keep it in a
// static variable.
inline PyObject* imported(const char* module, const char* name) {
  return nanobind::object(nanobind::module_::import_(module).attr(name))
      .release()
      .ptr();
}

}  // namespace allhands::python
