#pragma once

#include <nanobind/nanobind.h>

namespace allhands::python {

// as_finalizer, for Python callables that run while objects are deleted.
void bind_finalizer(nanobind::module_& m);

// Whether the interpreter is shutting down; a thread that then asks for the GIL does
// not survive.
inline bool is_python_ending() {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

}  // namespace allhands::python
