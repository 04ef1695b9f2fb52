// Work and Transfer for Python.
#include "allhands/python/work.hpp"

#include <utility>

#include "allhands/base/error.hpp"
#include "allhands/python/communicator.hpp"
#include "allhands/python/errors.hpp"
#include "allhands/python/imported.hpp"
#include "allhands/python/time_limits.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace allhands::python {
namespace {

nb::object exception_of(const std::exception_ptr& error) {
  if (!error) return nb::none();
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return to_exception(known);
  } catch (const std::exception& other) {
    return to_exception(Error(ErrorKind::Backend, other.what()));
  }
}

class PyWork {
 public:
  PyWork(std::shared_ptr<Work> work, nb::object communicator)
      : work_(std::move(work)), communicator_(std::move(communicator)) {}

  // This thread carries the operation out, if it has not begun.
  void wait_for(nb::handle timeout) const {
    Communicator& communicator = core();
    const Limits limits = limits_of_wait(timeout);
    wait_and_mark([&] { communicator.wait(*work_, limits); });
  }

  bool is_completed() const { return work_->is_completed(); }
  nb::object exception() const { return exception_of(work_->error()); }

  void add_done_callback(nb::object callback) const {
    // Freed under the GIL, whichever thread runs it.
    auto held = std::shared_ptr<nb::object>(new nb::object(std::move(callback)),
                                            [](nb::object* object) {
                                              const nb::gil_scoped_acquire gil;
                                              delete object;
                                            });
    const nb::gil_scoped_release unlocked;
    work_->on_done([held] {
      const nb::gil_scoped_acquire gil;
      try {
        (*held)();
      } catch (nb::python_error& error) {
        error.discard_as_unraisable(*held);
      }
    });
  }

 protected:
  template <class Wait>
  void wait_and_mark(Wait wait) const {
    const nb::gil_scoped_release unlocked;
    try {
      wait();
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::Interrupted) work_->forsake();
      throw;
    }
  }
  // Throws in a forked child, whose copy of the operation nobody will end.
  Communicator& core() const {
    return nb::inst_ptr<PyCommunicator>(communicator_)->core();
  }

 private:
  std::shared_ptr<Work> work_;
  nb::object communicator_;
};

class PyTransfer : public PyWork {
 public:
  PyTransfer(TransferPtr transfer, nb::object communicator)
      : PyWork(std::shared_ptr<Work>(transfer, &transfer->work),
               std::move(communicator)),
        transfer_(std::move(transfer)) {}

  // This thread moves the messages meanwhile, which saves a change of threads.
  void wait_for(nb::handle timeout) const {
    ProgressEngine& engine = core().engine();
    const Limits limits = limits_of_wait(timeout);
    wait_and_mark([&] { engine.wait(transfer_, limits, ProgressEngine::AtEnd::GoOn); });
  }

  bool is_send() const { return transfer_->is_send; }
  int peer() const { return transfer_->is_send ? transfer_->peer : transfer_->source; }

 private:
  TransferPtr transfer_;
};

}  // namespace

nb::object wrap(std::shared_ptr<Work> work, nb::object communicator, nb::list outputs) {
  static PyObject* const type = imported("allhands.backends.native", "NativeWork");
  return nb::handle(type)(PyWork(std::move(work), std::move(communicator)), outputs);
}

nb::object wrap(TransferPtr transfer, nb::object communicator, nb::list outputs) {
  static PyObject* const type = imported("allhands.backends.native", "NativeTransfer");
  return nb::handle(type)(PyTransfer(std::move(transfer), std::move(communicator)),
                          outputs);
}

void bind_work(nb::module_& m) {
  nb::class_<PyWork>(m, "Work", "A queued operation.")
      .def("wait_for", &PyWork::wait_for, "timeout"_a.none(),
           nb::sig("def wait_for(self, timeout: datetime.timedelta | None) -> None"),
           "Returns when the operation has ended, or raises what it raised; "
           "CollectiveTimeoutError when `timeout` passes first, and the operation goes "
           "on.")
      .def("is_completed", &PyWork::is_completed)
      .def("exception", &PyWork::exception,
           nb::sig("def exception(self) -> BaseException | None"),
           "What it raised; None while it runs and when it succeeded.")
      .def("add_done_callback", &PyWork::add_done_callback, "callback"_a,
           nb::sig("def add_done_callback(self, callback: "
                   "collections.abc.Callable[[], object]) -> None"),
           "Called when the operation has ended, from the thread that ran it; at once "
           "if it has ended already.");
  nb::class_<PyTransfer, PyWork>(m, "Transfer", "A posted send or receive.")
      .def("wait_for", &PyTransfer::wait_for, "timeout"_a.none(),
           nb::sig("def wait_for(self, timeout: datetime.timedelta | None) -> None"),
           "As Work.wait_for; this thread moves messages meanwhile.")
      .def_prop_ro("is_send", &PyTransfer::is_send)
      .def_prop_ro("peer", &PyTransfer::peer,
                   "The rank at the other end; -1 for any source until it is known.");
}

}  // namespace allhands::python
