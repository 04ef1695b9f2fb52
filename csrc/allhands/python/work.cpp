// allhands._C.Work, the base of the native engine's Work.
#include "allhands/python/work.hpp"

#include <chrono>
#include <memory>
#include <utility>

#include "allhands/base/error.hpp"
#include "allhands/base/thread_mark.hpp"
#include "allhands/python/communicator.hpp"
#include "allhands/python/errors.hpp"
#include "allhands/python/gil.hpp"
#include "allhands/python/imported.hpp"
#include "allhands/python/time_limits.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace allhands::python {
namespace {

// The contents of an allhands._C.Work object. It is a plain extension type, as only
// such a type can be a base class beside Work, and as its objects can be made without
// running Python code.
struct State {
  PyObject_HEAD;
  std::shared_ptr<Work> work;
  TransferPtr transfer;      // null for a collective
  Deadline::Duration limit;  // of the operation
  nb::object communicator;
  nb::object outputs;
  nb::object read;  // the type of an array that it reads; null: unknown

  // Throws in a forked child, where nothing ends the copy of the operation.
  Communicator& core() const {
    return nb::inst_ptr<PyCommunicator>(communicator)->core();
  }
};

PyTypeObject* type = nullptr;

State& state_of(PyObject* self) { return *reinterpret_cast<State*>(self); }

// For a method, which Python may call with any object.
State& state_of(nb::handle self) {
  if (!PyObject_TypeCheck(self.ptr(), type))
    throw nb::type_error("a method of allhands._C.Work needs one of its objects");
  return state_of(self.ptr());
}

PyObject* refuse_new(PyTypeObject* called, PyObject*, PyObject*) noexcept {
  PyErr_Format(PyExc_TypeError,
               "%s: only the operations make one, see their async_op=True",
               called->tp_name);
  return nullptr;
}

int traverse(PyObject* self, visitproc visit, void* arg) noexcept {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(state_of(self).outputs.ptr());
  Py_VISIT(state_of(self).read.ptr());
  return 0;
}

int clear(PyObject* self) noexcept {
  state_of(self).outputs.reset();
  state_of(self).read.reset();
  return 0;
}

void destroy(PyObject* self) noexcept {
  PyTypeObject* const own = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  State& state = state_of(self);
  std::destroy_at(&state.work);
  std::destroy_at(&state.transfer);
  std::destroy_at(&state.communicator);
  std::destroy_at(&state.outputs);
  std::destroy_at(&state.read);
  own->tp_free(self);
  Py_DECREF(own);
}

PyObject* outputs(PyObject* self, void*) noexcept {
  const nb::object& outputs = state_of(self).outputs;
  // Empty once the garbage collector has cleared them.
  return outputs.is_valid() ? Py_NewRef(outputs.ptr()) : PyList_New(0);
}

PyObject* read(PyObject* self, void*) noexcept {
  const nb::object& read = state_of(self).read;
  return Py_NewRef(read.is_valid() ? read.ptr() : Py_None);
}

PyObject* limit(PyObject* self, void*) noexcept {
  using Seconds = std::chrono::duration<double>;
  return PyFloat_FromDouble(Seconds(state_of(self).limit).count());
}

PyGetSetDef kProperties[] = {
    {"_limit", limit, nullptr, "The limit of the operation in seconds.", nullptr},
    {"_outputs", outputs, nullptr, "The arrays that the operation writes.", nullptr},
    {"_read", read, nullptr, "The type of an array that it reads; None: unknown.",
     nullptr},
    {}};
PyType_Slot kWorkSlots[] = {{Py_tp_new, reinterpret_cast<void*>(refuse_new)},
                            {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                            {Py_tp_clear, reinterpret_cast<void*>(clear)},
                            {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
                            {Py_tp_getset, kProperties},
                            {Py_tp_doc, const_cast<char*>("An operation under way.")},
                            {0, nullptr}};
PyType_Spec kWorkSpec = {"allhands._C.Work", sizeof(State), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                         kWorkSlots};

nb::object make(PyObject* of, std::shared_ptr<Work> work, TransferPtr transfer,
                Deadline::Duration limit, nb::object communicator, nb::list outputs,
                nb::object read) {
  auto* const derived = reinterpret_cast<PyTypeObject*>(of);
  nb::object self = nb::steal(derived->tp_alloc(derived, 0));
  if (!self.is_valid()) nb::raise_python_error();
  State& state = state_of(self.ptr());
  std::construct_at(&state.work, std::move(work));
  std::construct_at(&state.transfer, std::move(transfer));
  state.limit = limit;
  std::construct_at(&state.communicator, std::move(communicator));
  std::construct_at(&state.outputs, std::move(outputs));
  std::construct_at(&state.read, std::move(read));
  return self;
}

// Frees the arrays of operations that have ended as the scope ends, under the GIL.
class ArraysFreed {
 public:
  explicit ArraysFreed(const State& state) : of_(state.communicator) {}
  ArraysFreed(const ArraysFreed&) = delete;
  ArraysFreed& operator=(const ArraysFreed&) = delete;
  ~ArraysFreed() { nb::inst_ptr<PyCommunicator>(of_)->drop_ended(); }

 private:
  const nb::object of_;
};

// This thread carries out the operation, if it has not begun, or moves the messages.
bool wait(nb::handle self, nb::handle timeout) {
  State& state = state_of(self);
  Communicator& core = state.core();
  const Limits limits = limits_of_wait(timeout);
  const ArraysFreed freed(state);
  const GilReleased unlocked;
  try {
    if (state.transfer)
      core.engine().wait(state.transfer, limits, ProgressEngine::AtEnd::GoOn);
    else
      core.wait(*state.work, limits);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::Interrupted) state.work->forsake();
    throw;
  }
  return true;
}

void add_done_callback(nb::handle self, nb::object callback) {
  State& state = state_of(self);
  // Freed under the GIL, whichever thread frees it.
  auto held = std::shared_ptr<nb::object>(new nb::object(std::move(callback)),
                                          [](nb::object* object) {
                                            const GilHeld gil;
                                            delete object;
                                          });
  const ThreadMark in_callback(&state.core());  // if the operation has ended before
  const GilReleased unlocked;
  state.work->on_done([held] { run_unraisable(*held, [&] { (*held)(); }); });
}

// A message is driven from the beginning. In a callback this may wait for peers.
void hurry(nb::handle self) {
  State& state = state_of(self);
  if (state.transfer) return;
  Communicator& core = state.core();
  const GilReleased unlocked;
  core.hurry(*state.work);
}

void postpone(nb::handle self) {
  State& state = state_of(self);
  if (!state.transfer) state.core().postpone(*state.work);
}

nb::object envelope(nb::handle self) {
  const State& state = state_of(self);
  const TransferPtr& transfer = state.transfer;
  if (!transfer || transfer->is_send) return nb::none();
  // Until it has ended, another thread may write these values.
  if (!state.work->is_completed()) return nb::make_tuple(kAnySource, 0, 0);
  return nb::make_tuple(transfer->source, transfer->came_tag, transfer->came_bytes);
}

template <class Function, class... Extra>
void method(const char* name, Function function, const Extra&... extra) {
  const nb::handle scope(reinterpret_cast<PyObject*>(type));
  nb::cpp_function_def(function, nb::scope(scope), nb::name(name), nb::is_method(),
                       extra...);
}

}  // namespace

nb::object wrap(std::shared_ptr<Work> work, Deadline::Duration limit,
                nb::object communicator, nb::list outputs, nb::object read) {
  static PyObject* const of = imported("allhands.backends.native", "NativeWork");
  return make(of, std::move(work), nullptr, limit, std::move(communicator),
              std::move(outputs), std::move(read));
}

nb::object wrap(TransferPtr transfer, nb::object communicator, nb::list outputs) {
  static PyObject* const of = imported("allhands.backends.native", "NativeTransfer");
  std::shared_ptr<Work> work(transfer, &transfer->work);
  const Deadline::Duration limit = transfer->deadline.limit();
  return make(of, std::move(work), std::move(transfer), limit, std::move(communicator),
              std::move(outputs), {});
}

void bind_work(nb::module_& m) {
  type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&kWorkSpec));
  if (type == nullptr) nb::raise_python_error();
  m.attr("Work") = nb::handle(reinterpret_cast<PyObject*>(type));
  method("wait", &wait, "timeout"_a.none() = nb::none(),
         nb::sig("def wait(self, timeout: datetime.timedelta | None = None) -> bool"),
         "Wait for the end of the operation and return True, or raise its error. If "
         "`timeout` passes first and is not 0, raise CollectiveTimeoutError; the "
         "operation goes on.");
  method(
      "is_completed",
      [](nb::handle self) { return state_of(self).work->is_completed(); },
      nb::sig("def is_completed(self) -> bool"));
  method(
      "exception",
      [](nb::handle self) { return to_exception(state_of(self).work->error()); },
      nb::sig("def exception(self) -> BaseException | None"),
      "Return the error of the operation; None while it runs and after a success.");
  method("add_done_callback", &add_done_callback, "callback"_a,
         nb::sig("def add_done_callback(self, callback: "
                 "collections.abc.Callable[[], object]) -> None"),
         "Call a function when the operation has ended, in the thread that ran it. If "
         "the operation has ended already, call it at once.");
  method("_hurry", &hurry, nb::sig("def _hurry(self) -> None"), "See `Work._hurry`.");
  method("_postpone", &postpone, nb::sig("def _postpone(self) -> None"),
         "See `Work._postpone`.");
  method(
      "_envelope", &envelope,
      nb::sig("def _envelope(self) -> tuple[int, int, int] | None"),
      "Return the source, tag and bytes of the message of an ended receive or probe. "
      "The source is -1 if no message has come. Return None for other operations.");
}

}  // namespace allhands::python
