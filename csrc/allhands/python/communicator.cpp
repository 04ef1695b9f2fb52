// Communicator and Work for Python. Queued operations keep their arrays alive: the
// Communicator holds them until it next looks and finds them done.
#include "allhands/python/communicator.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "allhands/base/error.hpp"
#include "allhands/comm/communicator.hpp"
#include "allhands/python/buffer.hpp"
#include "allhands/python/errors.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace allhands::python {
namespace {

Deadline::Duration duration_of(double seconds) {
  constexpr double kMost = 9e9;  // what fits into 64 bits of nanoseconds: 285 years
  if (!(seconds < kMost)) return Deadline::Duration::max();
  return std::chrono::duration_cast<Deadline::Duration>(
      std::chrono::duration<double>(seconds));
}

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
  explicit PyWork(std::shared_ptr<Work> work) : work_(std::move(work)) {}

  void wait(std::optional<double> timeout) const {
    const Deadline::Duration limit =
        timeout ? duration_of(*timeout) : Deadline::Duration::max();
    const nb::gil_scoped_release unlocked;
    work_->wait({Deadline::after(limit), python_interrupt});
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

 private:
  std::shared_ptr<Work> work_;
};

using Peer = std::tuple<std::string, int, std::uint64_t>;

Membership membership_of(int rank, const std::string& name,
                         const std::vector<Peer>& peers) {
  Membership membership{name, rank, {}};
  for (const auto& [host, pid, start] : peers)
    membership.peers.push_back({host, pid, start});
  return membership;
}

Token token_of(const nb::bytes& bytes) {
  Token token;
  if (bytes.size() != token.size())
    throw Error(ErrorKind::Value, "a group's token has " +
                                      std::to_string(token.size()) + " bytes, got " +
                                      std::to_string(bytes.size()));
  std::memcpy(token.data(), bytes.data(), token.size());
  return token;
}

class PyCommunicator {
 public:
  PyCommunicator(int rank, int size, const std::string& name, const nb::bytes& token,
                 const std::vector<Peer>& peers)
      : core_(std::make_unique<Communicator>(membership_of(rank, name, peers),
                                             token_of(token))) {
    if (static_cast<std::size_t>(size) != peers.size())
      throw Error(ErrorKind::Value, "group '" + name + "' of size " +
                                        std::to_string(size) + " has " +
                                        std::to_string(peers.size()) + " peers");
  }
  // A forked child leaks its copy: waiting for threads it has not would never end.
  ~PyCommunicator() {
    if (core_->is_forked())
      core_.release();
    else
      close(0);
  }

  const Communicator& core() const { return *core_; }

  // Runs or queues `operation`; `arrays` live until it has ended.
  nb::object submit(const Communicator::Operation& operation, nb::object arrays,
                    double timeout, bool async_op) {
    const Deadline deadline = Deadline::after(duration_of(timeout));
    if (!async_op) {
      const nb::gil_scoped_release unlocked;
      core_->run(operation, {deadline, python_interrupt});
      return nb::none();
    }
    std::erase_if(pending_, [](const auto& p) { return p.first->is_completed(); });
    auto work = core_->post(operation, deadline);
    pending_.emplace_back(work, std::move(arrays));
    return nb::cast(new PyWork(std::move(work)), nb::rv_policy::take_ownership);
  }

  void abort(const std::string& reason) {
    const nb::gil_scoped_release unlocked;
    core_->abort(reason);
  }

  void close(double grace) {
    {
      const nb::gil_scoped_release unlocked;
      core_->close({Deadline::after(duration_of(grace)), python_interrupt});
    }
    pending_.clear();
  }

 private:
  std::unique_ptr<Communicator> core_;
  std::vector<std::pair<std::shared_ptr<Work>, nb::object>> pending_;
};

void bind_work(nb::module_& m) {
  nb::class_<PyWork>(m, "Work", "A queued operation.")
      .def("wait", &PyWork::wait, "timeout"_a.none() = nb::none(),
           "Returns when the operation has ended, or raises what it raised. Seconds; "
           "CollectiveTimeoutError when they pass first, and the operation goes on.")
      .def("is_completed", &PyWork::is_completed)
      .def("exception", &PyWork::exception,
           nb::sig("def exception(self) -> BaseException | None"),
           "What it raised; None while it runs and when it succeeded.")
      .def("add_done_callback", &PyWork::add_done_callback, "callback"_a,
           nb::sig("def add_done_callback(self, callback: "
                   "collections.abc.Callable[[], object]) -> None"),
           "Called when the operation has ended, from the thread that ran it; at once "
           "if it has ended already.");
}

}  // namespace

void bind_communicator(nb::module_& m) {
  bind_work(m);
  m.def(
      "process_identity",
      [] {
        const ProcessIdentity self = this_process();
        return Peer(self.host, self.pid, self.start);
      },
      "(host, pid, start time) of this process, by which its peers know it.");

  nb::class_<PyCommunicator>(m, "Communicator",
                             "A group of ranks, seen by one of them.")
      .def(
          nb::init<int, int, const std::string&, const nb::bytes&,
                   const std::vector<Peer>&>(),
          "rank"_a, "size"_a, nb::kw_only(), "name"_a, "token"_a, "peers"_a,
          "No communication happens before the first operation. `token`: 32 bytes that "
          "only this group's ranks know; `peers`: process_identity() of each rank.")
      .def_prop_ro("rank",
                   [](const PyCommunicator& self) { return self.core().rank(); })
      .def_prop_ro("size",
                   [](const PyCommunicator& self) { return self.core().size(); })
      .def_prop_ro("name",
                   [](const PyCommunicator& self) { return self.core().name(); })
      .def(
          "all_reduce",
          [](PyCommunicator& self, nb::handle output, nb::handle input, int op,
             double factor, double timeout, bool async_op) {
            return self.submit(
                self.core().all_reduce(nb::cast<const PyBuffer&>(output).buffer(),
                                       nb::cast<const PyBuffer&>(input).buffer(),
                                       static_cast<ReduceOp>(op), factor),
                nb::make_tuple(output, input), timeout, async_op);
          },
          "output"_a, "input"_a, "op"_a, "factor"_a, "timeout"_a, "async_op"_a,
          nb::sig(
              "def all_reduce(self, output: Buffer, input: Buffer, op: int, factor: "
              "float, timeout: float, async_op: bool) -> Work | None"))
      .def(
          "broadcast",
          [](PyCommunicator& self, nb::handle buffer, int root, double timeout,
             bool async_op) {
            return self.submit(
                self.core().broadcast(nb::cast<const PyBuffer&>(buffer).buffer(), root),
                nb::borrow(buffer), timeout, async_op);
          },
          "buffer"_a, "root"_a, "timeout"_a, "async_op"_a,
          nb::sig("def broadcast(self, buffer: Buffer, root: int, timeout: float, "
                  "async_op: bool) -> Work | None"))
      .def(
          "all_gather",
          [](PyCommunicator& self, nb::list outputs, nb::handle input, double timeout,
             bool async_op) {
            std::vector<Buffer> buffers;
            for (nb::handle output : outputs)
              buffers.push_back(nb::cast<const PyBuffer&>(output).buffer());
            return self.submit(
                self.core().all_gather(std::move(buffers),
                                       nb::cast<const PyBuffer&>(input).buffer()),
                nb::make_tuple(nb::tuple(outputs), input), timeout, async_op);
          },
          "outputs"_a, "input"_a, "timeout"_a, "async_op"_a,
          nb::sig("def all_gather(self, outputs: list[Buffer], input: Buffer, timeout: "
                  "float, async_op: bool) -> Work | None"))
      .def(
          "all_gather_single",
          [](PyCommunicator& self, nb::handle output, nb::handle input, double timeout,
             bool async_op) {
            return self.submit(self.core().all_gather_single(
                                   nb::cast<const PyBuffer&>(output).buffer(),
                                   nb::cast<const PyBuffer&>(input).buffer()),
                               nb::make_tuple(output, input), timeout, async_op);
          },
          "output"_a, "input"_a, "timeout"_a, "async_op"_a,
          nb::sig("def all_gather_single(self, output: Buffer, input: Buffer, timeout: "
                  "float, async_op: bool) -> Work | None"))
      .def(
          "barrier",
          [](PyCommunicator& self, double timeout, bool async_op) {
            return self.submit(self.core().barrier(), nb::none(), timeout, async_op);
          },
          "timeout"_a, "async_op"_a,
          nb::sig("def barrier(self, timeout: float, async_op: bool) -> Work | None"))
      .def("abort", &PyCommunicator::abort, "reason"_a,
           "Breaks the group for every rank; everybody who waits in it raises.")
      .def("close", &PyCommunicator::close, "grace"_a = 0.0,
           "Waits up to `grace` seconds for queued operations, ends the others, and "
           "tells the peers that this rank is gone.");
}

}  // namespace allhands::python
