// Communicator and Work for Python. Queued operations keep their arrays alive: the
// Communicator holds them until it next looks and finds them done.
#include "allhands/python/communicator.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "allhands/base/error.hpp"
#include "allhands/comm/communicator.hpp"
#include "allhands/python/buffer.hpp"
#include "allhands/python/errors.hpp"
#include "allhands/python/tuning.hpp"
#include "allhands/python/work.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace allhands::python {
namespace {

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

using Bytes = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>;

class PyCommunicator {
 public:
  PyCommunicator(int rank, int size, const std::string& name, const nb::bytes& token,
                 const std::vector<Peer>& peers,
                 const std::map<std::string, std::uint64_t>& tuning)
      : core_(std::make_unique<Communicator>(membership_of(rank, name, peers),
                                             token_of(token),
                                             tuning_of(size, tuning))) {
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
    auto work = core_->post(operation, deadline);
    keep(work, std::move(arrays));
    return wrap(std::move(work));
  }

  // Posts a send or a receive and takes it to its end; the rank at the other end.
  int transfer(bool is_send, const Buffer& buffer, int peer, std::int64_t tag,
               double timeout) {
    const nb::gil_scoped_release unlocked;
    const Limits limits = {Deadline::after(duration_of(timeout)), python_interrupt};
    const TransferPtr posted = post(is_send, buffer, peer, tag, limits);
    core_->engine().wait(posted, limits, ProgressEngine::AtEnd::GiveUp);
    return posted->source;
  }

  // Posts it and leaves it to the group's thread.
  nb::object start(nb::object self, bool is_send, nb::handle buffer, int peer,
                   std::int64_t tag, double timeout) {
    TransferPtr posted;
    {
      const Buffer& array = nb::cast<const PyBuffer&>(buffer).buffer();
      const nb::gil_scoped_release unlocked;
      const Limits limits = {Deadline::after(duration_of(timeout)), python_interrupt};
      posted = post(is_send, array, peer, tag, limits);
      core_->engine().drive(posted);
    }
    keep({posted, &posted->work}, nb::borrow(buffer));
    return wrap(std::move(posted), core_->engine(), std::move(self));
  }

  // Posts both, then waits for both.
  int exchange(const Buffer& output, int to, std::int64_t send_tag, const Buffer& input,
               int from, std::int64_t recv_tag, double timeout) {
    const nb::gil_scoped_release unlocked;
    const Limits limits = {Deadline::after(duration_of(timeout)), python_interrupt};
    const TransferPtr received = core_->post_recv(input, from, recv_tag, limits);
    try {
      const TransferPtr sent = core_->post_send(output, to, send_tag, limits);
      core_->engine().wait(sent, limits, ProgressEngine::AtEnd::GiveUp);
    } catch (const Error& error) {
      core_->engine().give_up(received, error);  // it would write to a freed array
      throw;
    }
    core_->engine().wait(received, limits, ProgressEngine::AtEnd::GiveUp);
    return received->source;
  }

  // This rank's bytes of a new shared array.
  Bytes empty_shared(DType dtype, const std::vector<std::size_t>& shape,
                     double timeout) {
    std::shared_ptr<SharedArray> array;
    {
      const nb::gil_scoped_release unlocked;
      array = core_->empty_shared(
          dtype, shape, {Deadline::after(duration_of(timeout)), python_interrupt});
    }
    using Pointer = std::shared_ptr<SharedArray>;
    const nb::capsule owner(new Pointer(array), [](void* pointer) noexcept {
      delete static_cast<Pointer*>(pointer);
    });
    return Bytes(array->data(), {array->num_bytes()}, owner);
  }

  // The bytes of `peer`'s that `buffer` are here; they keep `buffer`.
  Bytes peer_bytes(nb::handle buffer, int peer) const {
    const Buffer& mine = nb::cast<const PyBuffer&>(buffer).buffer();
    return Bytes(core_->peer_data(mine, peer), {mine.num_bytes()}, buffer);
  }

  void abort(const std::string& reason) {
    const nb::gil_scoped_release unlocked;
    core_->fail(Error(ErrorKind::Backend, "rank " + std::to_string(core_->rank()) +
                                              " aborted it: " + reason));
  }

  void disagree(const std::string& reason) {
    const nb::gil_scoped_release unlocked;
    core_->fail(Error(ErrorKind::Mismatch, reason));
  }

  void close(double grace) {
    {
      const nb::gil_scoped_release unlocked;
      core_->close({Deadline::after(duration_of(grace)), python_interrupt});
    }
    pending_.clear();
  }

 private:
  TransferPtr post(bool is_send, const Buffer& buffer, int peer, std::int64_t tag,
                   const Limits& limits) {
    return is_send ? core_->post_send(buffer, peer, tag, limits)
                   : core_->post_recv(buffer, peer, tag, limits);
  }

  // `arrays` live until `work` has ended and something else is posted.
  void keep(std::shared_ptr<Work> work, nb::object arrays) {
    const auto ended =
        std::stable_partition(pending_.begin(), pending_.end(),
                              [](const auto& p) { return !p.first->is_completed(); });
    // Freed last: that may run any Python code, also this function.
    const std::vector<Pending> freed(std::make_move_iterator(ended),
                                     std::make_move_iterator(pending_.end()));
    pending_.erase(ended, pending_.end());
    pending_.emplace_back(std::move(work), std::move(arrays));
  }

  using Pending = std::pair<std::shared_ptr<Work>, nb::object>;

  std::unique_ptr<Communicator> core_;
  std::vector<Pending> pending_;
};

const Buffer& core(nb::handle buffer) {
  return nb::cast<const PyBuffer&>(buffer).buffer();
}

std::vector<Buffer> core(nb::list buffers) {
  std::vector<Buffer> result;
  for (const nb::handle buffer : buffers) result.push_back(core(buffer));
  return result;
}

// Consecutive pieces of `buffer` of the given numbers of elements.
std::vector<Buffer> pieces(const Buffer& buffer,
                           const std::vector<std::size_t>& counts) {
  std::vector<Buffer> result;
  std::size_t at = 0;
  for (const std::size_t count : counts) {
    if (count > buffer.count - at)
      throw Error(ErrorKind::Value, "the pieces need more than the array's " +
                                        std::to_string(buffer.count) + " elements");
    result.push_back(buffer.slice(at, count));
    at += count;
  }
  return result;
}

// Every operation ends with these: seconds until it gives up, and whether to return a
// Work at once (None otherwise).
#define ALLHANDS_SIGNATURE(name, parameters) \
  nb::sig("def " name "(self, " parameters   \
          "timeout: float, async_op: bool) -> Work | None")

using Self = PyCommunicator&;
using Counts = std::vector<std::size_t>;

void bind_reductions(nb::class_<PyCommunicator>& c) {
  c.def(
      "all_reduce",
      [](Self self, nb::handle output, nb::handle input, int op, double factor,
         double timeout, bool async_op) {
        return self.submit(self.core().all_reduce(core(output), core(input),
                                                  static_cast<ReduceOp>(op), factor),
                           nb::make_tuple(output, input), timeout, async_op);
      },
      "output"_a, "input"_a, "op"_a, "factor"_a, "timeout"_a, "async_op"_a,
      ALLHANDS_SIGNATURE("all_reduce",
                         "output: Buffer, input: Buffer, op: int, factor: float, "));
  c.def(
      "reduce",
      [](Self self, nb::handle buffer, int root, int op, double factor, double timeout,
         bool async_op) {
        return self.submit(
            self.core().reduce(core(buffer), root, static_cast<ReduceOp>(op), factor),
            nb::borrow(buffer), timeout, async_op);
      },
      "buffer"_a, "root"_a, "op"_a, "factor"_a, "timeout"_a, "async_op"_a,
      ALLHANDS_SIGNATURE("reduce",
                         "buffer: Buffer, root: int, op: int, factor: float, "));
  c.def(
      "reduce_scatter",
      [](Self self, nb::handle output, nb::list inputs, int op, double factor,
         double timeout, bool async_op) {
        return self.submit(
            self.core().reduce_scatter(core(output), core(inputs),
                                       static_cast<ReduceOp>(op), factor),
            nb::make_tuple(output, nb::tuple(inputs)), timeout, async_op);
      },
      "output"_a, "inputs"_a, "op"_a, "factor"_a, "timeout"_a, "async_op"_a,
      ALLHANDS_SIGNATURE(
          "reduce_scatter",
          "output: Buffer, inputs: list[Buffer], op: int, factor: float, "));
}

void bind_moves(nb::class_<PyCommunicator>& c) {
  c.def(
      "broadcast",
      [](Self self, nb::handle buffer, int root, double timeout, bool async_op) {
        return self.submit(self.core().broadcast(core(buffer), root),
                           nb::borrow(buffer), timeout, async_op);
      },
      "buffer"_a, "root"_a, "timeout"_a, "async_op"_a,
      ALLHANDS_SIGNATURE("broadcast", "buffer: Buffer, root: int, "));
  c.def(
      "all_gather",
      [](Self self, nb::list outputs, nb::handle input, double timeout, bool async_op) {
        return self.submit(self.core().all_gather(core(outputs), core(input)),
                           nb::make_tuple(nb::tuple(outputs), input), timeout,
                           async_op);
      },
      "outputs"_a, "input"_a, "timeout"_a, "async_op"_a,
      ALLHANDS_SIGNATURE("all_gather", "outputs: list[Buffer], input: Buffer, "));
  c.def(
      "gather",
      [](Self self, nb::list outputs, nb::handle input, int root, double timeout,
         bool async_op) {
        return self.submit(self.core().gather(core(outputs), core(input), root),
                           nb::make_tuple(nb::tuple(outputs), input), timeout,
                           async_op);
      },
      "outputs"_a, "input"_a, "root"_a, "timeout"_a, "async_op"_a,
      ALLHANDS_SIGNATURE("gather",
                         "outputs: list[Buffer], input: Buffer, root: int, "));
  c.def(
      "scatter",
      [](Self self, nb::handle output, nb::list inputs, int root, double timeout,
         bool async_op) {
        return self.submit(self.core().scatter(core(output), core(inputs), root),
                           nb::make_tuple(output, nb::tuple(inputs)), timeout,
                           async_op);
      },
      "output"_a, "inputs"_a, "root"_a, "timeout"_a, "async_op"_a,
      ALLHANDS_SIGNATURE("scatter",
                         "output: Buffer, inputs: list[Buffer], root: int, "));
  c.def(
      "all_to_all",
      [](Self self, nb::list outputs, nb::list inputs, double timeout, bool async_op) {
        return self.submit(self.core().all_to_all(core(outputs), core(inputs)),
                           nb::make_tuple(nb::tuple(outputs), nb::tuple(inputs)),
                           timeout, async_op);
      },
      "outputs"_a, "inputs"_a, "timeout"_a, "async_op"_a,
      ALLHANDS_SIGNATURE("all_to_all",
                         "outputs: list[Buffer], inputs: list[Buffer], "));
}

// The forms that take one array for all ranks, cut into consecutive pieces.
void bind_singles(nb::class_<PyCommunicator>& c) {
  c.def(
      "all_gather_single",
      [](Self self, nb::handle output, nb::handle input, double timeout,
         bool async_op) {
        const auto size = static_cast<std::size_t>(self.core().size());
        const std::size_t whole = core(input).count * size;
        if (core(output).count != whole)
          throw Error(ErrorKind::Value, "all_gather_single: the output has " +
                                            std::to_string(core(output).count) +
                                            " elements, expected " +
                                            std::to_string(whole));
        return self.submit(
            self.core().all_gather(
                pieces(core(output), Counts(size, core(input).count)), core(input)),
            nb::make_tuple(output, input), timeout, async_op);
      },
      "output"_a, "input"_a, "timeout"_a, "async_op"_a,
      ALLHANDS_SIGNATURE("all_gather_single", "output: Buffer, input: Buffer, "));
  c.def(
      "reduce_scatter_single",
      [](Self self, nb::handle output, nb::handle input, int op, double factor,
         double timeout, bool async_op) {
        const auto size = static_cast<std::size_t>(self.core().size());
        const std::size_t whole = core(output).count * size;
        if (core(input).count != whole)
          throw Error(ErrorKind::Value, "reduce_scatter_single: the input has " +
                                            std::to_string(core(input).count) +
                                            " elements, expected " +
                                            std::to_string(whole));
        return self.submit(
            self.core().reduce_scatter(
                core(output), pieces(core(input), Counts(size, core(output).count)),
                static_cast<ReduceOp>(op), factor),
            nb::make_tuple(output, input), timeout, async_op);
      },
      "output"_a, "input"_a, "op"_a, "factor"_a, "timeout"_a, "async_op"_a,
      ALLHANDS_SIGNATURE("reduce_scatter_single",
                         "output: Buffer, input: Buffer, op: int, factor: float, "));
  c.def(
      "all_to_all_single",
      [](Self self, nb::handle output, nb::handle input, const Counts& output_counts,
         const Counts& input_counts, double timeout, bool async_op) {
        return self.submit(self.core().all_to_all(pieces(core(output), output_counts),
                                                  pieces(core(input), input_counts)),
                           nb::make_tuple(output, input), timeout, async_op);
      },
      "output"_a, "input"_a, "output_counts"_a, "input_counts"_a, "timeout"_a,
      "async_op"_a,
      ALLHANDS_SIGNATURE("all_to_all_single",
                         "output: Buffer, input: Buffer, output_counts: "
                         "collections.abc.Sequence[int], input_counts: "
                         "collections.abc.Sequence[int], "));
}

void bind_messages(nb::class_<PyCommunicator>& c) {
  c.def(
      "send",
      [](Self self, nb::handle buffer, int peer, std::int64_t tag, double timeout) {
        self.transfer(true, core(buffer), peer, tag, timeout);
      },
      "buffer"_a, "peer"_a, "tag"_a, "timeout"_a,
      nb::sig("def send(self, buffer: Buffer, peer: int, tag: int, timeout: float) -> "
              "None"));
  c.def(
      "recv",
      [](Self self, nb::handle buffer, int peer, std::int64_t tag, double timeout) {
        return self.transfer(false, core(buffer), peer, tag, timeout);
      },
      "buffer"_a, "peer"_a, "tag"_a, "timeout"_a,
      nb::sig("def recv(self, buffer: Buffer, peer: int, tag: int, timeout: float) -> "
              "int"),
      "The rank it came from; peer -1: from any.");
  c.def(
      "isend",
      [](nb::object self, nb::handle buffer, int peer, std::int64_t tag,
         double timeout) {
        return nb::cast<Self>(self).start(self, true, buffer, peer, tag, timeout);
      },
      "buffer"_a, "peer"_a, "tag"_a, "timeout"_a,
      nb::sig("def isend(self, buffer: Buffer, peer: int, tag: int, timeout: float) -> "
              "Transfer"));
  c.def(
      "irecv",
      [](nb::object self, nb::handle buffer, int peer, std::int64_t tag,
         double timeout) {
        return nb::cast<Self>(self).start(self, false, buffer, peer, tag, timeout);
      },
      "buffer"_a, "peer"_a, "tag"_a, "timeout"_a,
      nb::sig("def irecv(self, buffer: Buffer, peer: int, tag: int, timeout: float) -> "
              "Transfer"));
  c.def(
      "sendrecv",
      [](Self self, nb::handle output, int to, std::int64_t send_tag, nb::handle input,
         int from, std::int64_t recv_tag, double timeout) {
        return self.exchange(core(output), to, send_tag, core(input), from, recv_tag,
                             timeout);
      },
      "output"_a, "to"_a, "send_tag"_a, "input"_a, "from_"_a, "recv_tag"_a, "timeout"_a,
      nb::sig(
          "def sendrecv(self, output: Buffer, to: int, send_tag: int, input: Buffer, "
          "from_: int, recv_tag: int, timeout: float) -> int"));
}

void bind_operations(nb::class_<PyCommunicator>& c) {
  bind_messages(c);
  bind_reductions(c);
  bind_moves(c);
  bind_singles(c);
  c.def(
      "barrier",
      [](Self self, double timeout, bool async_op) {
        return self.submit(self.core().barrier(), nb::none(), timeout, async_op);
      },
      "timeout"_a, "async_op"_a, ALLHANDS_SIGNATURE("barrier", ""));
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

  nb::class_<PyCommunicator> c(m, "Communicator", "A group of ranks, seen by one.");
  c.def(nb::init<int, int, const std::string&, const nb::bytes&,
                 const std::vector<Peer>&,
                 const std::map<std::string, std::uint64_t>&>(),
        "rank"_a, "size"_a, nb::kw_only(), "name"_a, "token"_a, "peers"_a, "tuning"_a,
        "No communication happens before the first operation. `token`: 32 bytes that "
        "only this group's ranks know; `peers`: process_identity() of each rank; "
        "`tuning`: changes of default_tuning().")
      .def_prop_ro("rank",
                   [](const PyCommunicator& self) { return self.core().rank(); })
      .def_prop_ro("size",
                   [](const PyCommunicator& self) { return self.core().size(); })
      .def_prop_ro("name",
                   [](const PyCommunicator& self) { return self.core().name(); })
      .def("empty_shared", &PyCommunicator::empty_shared, "dtype"_a, "shape"_a,
           "timeout"_a,
           "Collective: this rank's bytes of a new array in memory that all ranks "
           "share, zero at first.")
      .def("peer_bytes", &PyCommunicator::peer_bytes, "buffer"_a, "peer"_a,
           "The bytes of rank `peer` that are where `buffer` is in a shared array of "
           "this rank; they keep `buffer` alive.")
      .def("abort", &PyCommunicator::abort, "reason"_a,
           "Breaks the group for every rank; everybody who waits in it raises.")
      .def("disagree", &PyCommunicator::disagree, "reason"_a,
           "abort() with a CollectiveMismatchError: the ranks made the group unlike.")
      .def("close", &PyCommunicator::close, "grace"_a = 0.0,
           "Waits up to `grace` seconds for queued operations, ends the others, and "
           "tells the peers that this rank is gone.");
  bind_operations(c);
}

}  // namespace allhands::python
