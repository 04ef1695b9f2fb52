// Turns allhands::Error into an exception of allhands.errors, with its `ranks`.
#include "allhands/python/errors.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <exception>
#include <new>
#include <system_error>

#include "allhands/base/error.hpp"
#include "allhands/python/gil.hpp"
#include "allhands/python/imported.hpp"

namespace nb = nanobind;

namespace allhands::python {
namespace {

const char* class_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::Value:
      return "ArgumentError";
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

// The text may come from other ranks, so it need not be valid UTF-8.
nb::object text_of(const char* text) {
  const auto length = static_cast<Py_ssize_t>(std::strlen(text));
  return nb::steal(PyUnicode_DecodeUTF8(text, length, "replace"));
}

nb::object text_of(const Error& error) { return text_of(error.what()); }

nb::object to_cause(const RemoteException& cause) {
  static PyObject* const heard =
      imported("allhands.backends.remote_exception", "heard");
  return nb::handle{heard}(cause.rank, text_of(cause.text.c_str()));
}

}  // namespace

nb::object to_exception(const Error& error) {
  switch (error.kind()) {
    case ErrorKind::Interrupted:
      return nb::handle(PyExc_KeyboardInterrupt)(text_of(error));
    case ErrorKind::Type:
      return nb::handle(PyExc_TypeError)(text_of(error));
    case ErrorKind::Unsupported:
      return nb::handle(PyExc_RuntimeError)(text_of(error));
    default:
      break;
  }
  const nb::object type =
      nb::module_::import_("allhands.errors").attr(class_of(error.kind()));
  nb::object exception = type(text_of(error));
  if (nb::hasattr(exception, "ranks"))
    exception.attr("ranks") = nb::cast(error.ranks());
  if (const RemoteException* const cause = error.cause())
    exception.attr("__cause__") = to_cause(*cause);
  return exception;
}

nb::object to_exception(const std::exception_ptr& error) {
  if (!error) return nb::none();
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return to_exception(known);
  } catch (const std::exception& other) {
    return to_exception(Error(ErrorKind::Backend, other.what()));
  }
}

namespace {

// Whether a group's operation has failed; mistakes of the caller do not count.
bool is_failure(ErrorKind kind) {
  return kind == ErrorKind::RankFailed || kind == ErrorKind::Mismatch ||
         kind == ErrorKind::Timeout || kind == ErrorKind::Backend;
}

// Call while the frames of the call still exist.
void tell_of(const nb::object& exception) {
  static PyObject* const tell = imported("allhands.backends.failures", "tell");
  static_cast<void>(nb::handle{tell}(exception));
}

void set(const Error& error) {
  // A signal's handler has raised while the core waited; that exception stays.
  if (PyErr_Occurred()) return;
  try {
    const nb::object exception = to_exception(error);
    if (is_failure(error.kind())) tell_of(exception);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())),
                    exception.ptr());
  } catch (nb::python_error& other) {
    other.restore();  // a signal's handler ran while the exception was made, and raised
  }
}

}  // namespace

void raise(const std::exception_ptr& pending) noexcept {
  try {
    std::rethrow_exception(pending);
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const Error& error) {
    set(error);
  } catch (const std::system_error& error) {  // usually no thread could be started
    set(Error(ErrorKind::Backend, error.what()));
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

void bind_errors(nb::module_& m) {
  m.def("errno_text", &errno_text, nb::arg("code"),
        "Return the text of os.strerror. If a limit of this process is reached, the "
        "text also has the limit and the command that raises it.");
  nb::register_exception_translator([](const std::exception_ptr& pending, void*) {
    try {
      std::rethrow_exception(pending);
    } catch (const Error&) {
      raise(pending);
    } catch (const std::system_error&) {
      raise(pending);
    }
  });
}

bool python_interrupt() {
  GilHeld gil;
  return PyErr_CheckSignals() != 0;
}

}  // namespace allhands::python
