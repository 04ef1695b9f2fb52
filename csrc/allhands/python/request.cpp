#include "allhands/python/request.hpp"

#include <string>

#include "allhands/arena/collectives.hpp"
#include "allhands/base/error.hpp"
#include "allhands/python/errors.hpp"
#include "allhands/python/gil.hpp"
#include "allhands/python/time_limits.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace allhands::python {
namespace {

Error misuse(const Operation& operation, const char* problem,
             ErrorKind kind = ErrorKind::Unsupported) {
  return Error(
      kind, "persistent " + std::string(operation.collective->name) + ": " + problem);
}

// `request()`, as a slot of its type: the fastest way for Python to call it.
PyObject* call(PyObject* self, PyObject* arguments, PyObject* keywords) noexcept {
  const bool has_keywords = keywords != nullptr && PyDict_GET_SIZE(keywords) != 0;
  if (PyTuple_GET_SIZE(arguments) != 0 || has_keywords) {
    PyErr_SetString(PyExc_TypeError, "a persistent request takes no arguments");
    return nullptr;
  }
  try {
    nb::inst_ptr<Request>(self)->run();
    Py_RETURN_NONE;
  } catch (...) {
    raise(std::current_exception());
    return nullptr;
  }
}

PyType_Slot kRequestSlots[] = {{Py_tp_call, reinterpret_cast<void*>(call)},
                               {0, nullptr}};

}  // namespace

void Request::activate() {
  if (is_active_)
    throw misuse(operation_,
                 "it is under way already; wait() for what was started first");
  if (!held_.are_unchanged())
    throw misuse(operation_,
                 "an array was resized or has got other memory since the request was "
                 "made; make a new request",
                 ErrorKind::Value);
  is_active_ = true;
}

void Request::run() {
  activate();
  struct End {
    bool& is_active;
    ~End() { is_active = false; }
  } const end{is_active_};
  communicator().run(operation_, timeout_);
}

void Request::start() {
  activate();
  try {
    work_ = communicator().post(operation_, arrays_, timeout_);
  } catch (...) {
    is_active_ = false;
    throw;
  }
}

bool Request::wait(nb::handle timeout) {
  const std::shared_ptr<Work> work = work_;
  if (!work) throw misuse(operation_, "nothing to wait for; call start() first");
  const Limits limits = limits_of_wait(timeout);
  struct End {
    Request& request;
    const Work& work;
    ~End() {
      if (request.work_.get() != &work || !work.is_completed()) return;
      request.work_ = nullptr;
      request.is_active_ = false;
    }
  } const end{*this, *work};
  Communicator& core = communicator().core();
  const GilReleased unlocked;
  core.wait(*work, limits);
  return true;
}

std::string Request::describe() const {
  return "<PersistentRequest: " +
         allhands::describe(operation_.collective->descriptor(operation_)) +
         (is_active_ ? ", under way>" : ", idle>");
}

void bind_request(nb::module_& m) {
  nb::class_<Request>(m, "Request", nb::type_slots(kRequestSlots),
                      "A persistent request; see allhands.PersistentRequest.")
      .def("__repr__", &Request::describe)
      .def("start", &Request::start, "See PersistentRequest.start.")
      .def("wait", &Request::wait, "timeout"_a.none() = nb::none(),
           nb::sig("def wait(self, timeout: datetime.timedelta | None = None) -> bool"),
           "See PersistentRequest.wait.")
      .def("is_active", &Request::is_active, "See PersistentRequest.is_active.");
}

}  // namespace allhands::python
