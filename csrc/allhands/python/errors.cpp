// allhands::Error -> an exception of allhands.errors, with its `ranks`.
#include "allhands/python/errors.hpp"

#include <nanobind/stl/vector.h>

#include "allhands/base/error.hpp"

namespace nb = nanobind;

namespace allhands::python {
namespace {

const char* class_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::Network:
      return "DistNetworkError";
    case ErrorKind::Store:
      return "DistStoreError";
    case ErrorKind::QueueEmpty:
      return "QueueEmptyError";
    case ErrorKind::RankFailed:
      return "RankFailedError";
    case ErrorKind::Mismatch:
      return "CollectiveMismatchError";
    case ErrorKind::Timeout:
      return "CollectiveTimeoutError";
    default:
      return "DistBackendError";
  }
}

void raise(const Error& error) {
  switch (error.kind()) {
    case ErrorKind::Interrupted:
      if (PyErr_Occurred()) return;  // the signal handler's own exception
      PyErr_SetNone(PyExc_KeyboardInterrupt);
      return;
    case ErrorKind::Value:
      PyErr_SetString(PyExc_ValueError, error.what());
      return;
    case ErrorKind::Type:
      PyErr_SetString(PyExc_TypeError, error.what());
      return;
    default:
      break;
  }
  nb::object type =
      nb::module_::import_("allhands.errors").attr(class_of(error.kind()));
  nb::object exception = type(error.what());
  if (nb::hasattr(exception, "ranks"))
    exception.attr("ranks") = nb::cast(error.ranks());
  PyErr_SetObject(type.ptr(), exception.ptr());
}

}  // namespace

void bind_errors(nb::module_&) {
  nb::register_exception_translator([](const std::exception_ptr& pending, void*) {
    try {
      std::rethrow_exception(pending);
    } catch (const Error& error) {
      raise(error);
    }
  });
}

bool python_interrupt() {
  nb::gil_scoped_acquire gil;
  return PyErr_CheckSignals() != 0;
}

}  // namespace allhands::python
