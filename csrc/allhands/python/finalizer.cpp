// Finalizers that lose no Ctrl-C.
//
// Python drops what a finalizer raises, and a signal's handler may raise at any line of
// it. Here the exception is caught, and raised again by a pending call, which the
// interpreter makes as soon as the program goes on. This must be native code: after a
// finalizer written in Python, the program would go on within the finalizer.
#include "allhands/python/finalizer.hpp"

#include <Python.h>

namespace nb = nanobind;

namespace allhands::python {
namespace {

bool is_main_thread() {
  const nb::object main = nb::module_::import_("threading").attr("main_thread")();
  return nb::cast<unsigned long>(main.attr("ident")) == PyThread_get_thread_ident();
}

int raise_now(void* exception) {
  const auto error = nb::steal(static_cast<PyObject*>(exception));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  return -1;
}

void finalize(const nb::callable& function, const nb::object& argument) {
  try {
    function(argument);
  } catch (nb::python_error& error) {
    // Signal handlers and pending calls run in the main thread.
    if (!is_main_thread()) throw;
    nb::object exception = nb::borrow(error.value());
    if (Py_AddPendingCall(raise_now, exception.ptr()) != 0) throw;
    (void)exception.release();
  }
}

}  // namespace

void bind_finalizer(nb::module_& m) {
  m.def(
      "as_finalizer",
      [](nb::callable function) {
        return nb::cpp_function(
            [function](nb::object argument) { finalize(function, argument); });
      },
      nb::arg("function"),
      nb::sig("def as_finalizer(function: "
              "collections.abc.Callable[[typing.Any], object]) "
              "-> collections.abc.Callable[[typing.Any], None]"),
      "Return a callback for `weakref.ref` that calls `function`. An exception of "
      "`function` in the main thread, such as that of Ctrl-C, is raised there right "
      "after the callback.");
}

}  // namespace allhands::python
