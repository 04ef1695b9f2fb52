// The collectives for Python: arrays in, an Operation made, and what to do with it.
#include <nanobind/stl/vector.h>

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "allhands/base/error.hpp"
#include "allhands/python/array.hpp"
#include "allhands/python/communicator.hpp"
#include "allhands/python/reduction.hpp"
#include "allhands/python/request.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace allhands::python {
namespace {

using Counts = std::vector<std::size_t>;

Communicator& core_of(nb::handle self) {
  return nb::cast<PyCommunicator&>(self).core();
}

Access write_if(bool is_output) { return is_output ? Access::Write : Access::Read; }

// What every operation ends with. `async_op` False: runs it now, None; True: queues it,
// its Work; None: a Request for it.
template <class... Owners>
nb::object submit(nb::handle self, Operation operation, double timeout,
                  nb::handle async_op, const Owners&... arrays) {
  auto& communicator = nb::cast<PyCommunicator&>(self);
  const Deadline::Duration limit = duration_of(timeout);
  if (async_op.ptr() == Py_False) {
    communicator.run(operation, limit);
    return nb::none();
  }
  nb::object owners = nb::make_tuple(arrays.owner()...);
  if (async_op.ptr() == Py_True)
    return wrap(communicator.post(std::move(operation), std::move(owners), limit));
  return nb::cast(
      Request(nb::borrow(self), std::move(operation), std::move(owners), limit));
}

// Consecutive pieces of `buffer`, of the given numbers of rows, which are all it has.
std::vector<Buffer> pieces(const Buffer& buffer, const Counts& rows) {
  const std::size_t num_rows =
      std::accumulate(rows.begin(), rows.end(), std::size_t{0});
  const std::size_t row = num_rows == 0 ? 0 : buffer.count / num_rows;
  std::vector<Buffer> result;
  result.reserve(rows.size());
  std::size_t at = 0;
  for (const std::size_t count : rows) {
    result.push_back(buffer.slice(at * row, count * row));
    at += count;
  }
  return result;
}

// One piece of `whole` per rank, as large as `part`.
std::vector<Buffer> shares(const char* what, const Buffer& whole, const Buffer& part,
                           int size) {
  const auto num_ranks = static_cast<std::size_t>(size);
  if (whole.count != part.count * num_ranks)
    throw Error(ErrorKind::Value,
                std::string(what) + " has " + std::to_string(whole.count) +
                    " elements, expected " + std::to_string(part.count * num_ranks));
  std::vector<Buffer> result;
  result.reserve(num_ranks);
  for (std::size_t rank = 0; rank < num_ranks; ++rank)
    result.push_back(whole.slice(rank * part.count, part.count));
  return result;
}

#define ALLHANDS_SIGNATURE(name, parameters) \
  nb::sig("def " name "(self, " parameters   \
          "timeout: float, async_op: bool | None) -> typing.Any")

void bind_reductions(CommunicatorClass& c) {
  c.def(
      "all_reduce",
      [](nb::handle self, nb::handle tensor, nb::handle op, double timeout,
         nb::handle async_op) {
        const Array array(tensor, Access::Write, "tensor");
        const Reduction reduction("all_reduce", op);
        return submit(self,
                      core_of(self).all_reduce(array.buffer(), array.buffer(),
                                               reduction.op, reduction.factor),
                      timeout, async_op, array);
      },
      "tensor"_a.none(), "op"_a.none(), "timeout"_a, "async_op"_a.none(),
      ALLHANDS_SIGNATURE("all_reduce", "tensor: typing.Any, op: typing.Any, "));
  c.def(
      "reduce",
      [](nb::handle self, nb::handle tensor, int root, nb::handle op, double timeout,
         nb::handle async_op) {
        Communicator& core = core_of(self);
        const Array array(tensor, write_if(root == core.rank()), "tensor");
        const Reduction reduction("reduce", op);
        return submit(self,
                      core.reduce(array.buffer(), root, reduction.op, reduction.factor),
                      timeout, async_op, array);
      },
      "tensor"_a.none(), "root"_a, "op"_a.none(), "timeout"_a, "async_op"_a.none(),
      ALLHANDS_SIGNATURE("reduce", "tensor: typing.Any, root: int, op: typing.Any, "));
  c.def(
      "reduce_scatter",
      [](nb::handle self, nb::handle output, nb::handle input_list, nb::handle op,
         double timeout, nb::handle async_op) {
        const Array result(output, Access::Write, "output");
        Arrays inputs(input_list, Access::Read, "input_list");
        const Reduction reduction("reduce_scatter", op);
        return submit(
            self,
            core_of(self).reduce_scatter(result.buffer(), inputs.take_buffers(),
                                         reduction.op, reduction.factor),
            timeout, async_op, result, inputs);
      },
      "output"_a.none(), "input_list"_a, "op"_a.none(), "timeout"_a,
      "async_op"_a.none(),
      ALLHANDS_SIGNATURE(
          "reduce_scatter",
          "output: typing.Any, input_list: list[typing.Any], op: typing.Any, "));
  c.def(
      "reduce_scatter_single",
      [](nb::handle self, nb::handle output, nb::handle input, nb::handle op,
         double timeout, nb::handle async_op) {
        Communicator& core = core_of(self);
        const Array result(output, Access::Write, "output");
        const Array source(input, Access::Read, "input");
        const Reduction reduction("reduce_scatter_single", op);
        return submit(
            self,
            core.reduce_scatter(result.buffer(),
                                shares("reduce_scatter_single: the input",
                                       source.buffer(), result.buffer(), core.size()),
                                reduction.op, reduction.factor),
            timeout, async_op, result, source);
      },
      "output"_a.none(), "input"_a.none(), "op"_a.none(), "timeout"_a,
      "async_op"_a.none(),
      ALLHANDS_SIGNATURE("reduce_scatter_single",
                         "output: typing.Any, input: typing.Any, op: typing.Any, "));
}

void bind_one_to_all(CommunicatorClass& c) {
  c.def(
      "broadcast",
      [](nb::handle self, nb::handle tensor, int root, double timeout,
         nb::handle async_op) {
        Communicator& core = core_of(self);
        const Array array(tensor, write_if(root != core.rank()), "tensor");
        return submit(self, core.broadcast(array.buffer(), root), timeout, async_op,
                      array);
      },
      "tensor"_a.none(), "root"_a, "timeout"_a, "async_op"_a.none(),
      ALLHANDS_SIGNATURE("broadcast", "tensor: typing.Any, root: int, "));
  c.def(
      "gather",
      [](nb::handle self, nb::handle tensor, nb::handle gather_list, int root,
         double timeout, nb::handle async_op) {
        const Array input(tensor, Access::Read, "tensor");
        Arrays outputs(gather_list, Access::Write, "gather_list");
        return submit(
            self, core_of(self).gather(outputs.take_buffers(), input.buffer(), root),
            timeout, async_op, outputs, input);
      },
      "tensor"_a.none(), "gather_list"_a, "root"_a, "timeout"_a, "async_op"_a.none(),
      ALLHANDS_SIGNATURE(
          "gather", "tensor: typing.Any, gather_list: list[typing.Any], root: int, "));
  c.def(
      "scatter",
      [](nb::handle self, nb::handle tensor, nb::handle scatter_list, int root,
         double timeout, nb::handle async_op) {
        const Array output(tensor, Access::Write, "tensor");
        Arrays inputs(scatter_list, Access::Read, "scatter_list");
        return submit(
            self, core_of(self).scatter(output.buffer(), inputs.take_buffers(), root),
            timeout, async_op, output, inputs);
      },
      "tensor"_a.none(), "scatter_list"_a, "root"_a, "timeout"_a, "async_op"_a.none(),
      ALLHANDS_SIGNATURE(
          "scatter",
          "tensor: typing.Any, scatter_list: list[typing.Any], root: int, "));
}

void bind_all_to_all(CommunicatorClass& c) {
  c.def(
      "all_gather",
      [](nb::handle self, nb::handle tensor_list, nb::handle tensor, double timeout,
         nb::handle async_op) {
        const Array input(tensor, Access::Read, "tensor");
        Arrays outputs(tensor_list, Access::Write, "tensor_list");
        return submit(self,
                      core_of(self).all_gather(outputs.take_buffers(), input.buffer()),
                      timeout, async_op, outputs, input);
      },
      "tensor_list"_a, "tensor"_a.none(), "timeout"_a, "async_op"_a.none(),
      ALLHANDS_SIGNATURE("all_gather",
                         "tensor_list: list[typing.Any], tensor: typing.Any, "));
  c.def(
      "all_gather_single",
      [](nb::handle self, nb::handle output, nb::handle input, double timeout,
         nb::handle async_op) {
        Communicator& core = core_of(self);
        const Array result(output, Access::Write, "output_tensor");
        const Array source(input, Access::Read, "input_tensor");
        return submit(
            self,
            core.all_gather(shares("all_gather_single: the output", result.buffer(),
                                   source.buffer(), core.size()),
                            source.buffer()),
            timeout, async_op, result, source);
      },
      "output"_a.none(), "input"_a.none(), "timeout"_a, "async_op"_a.none(),
      ALLHANDS_SIGNATURE("all_gather_single",
                         "output: typing.Any, input: typing.Any, "));
  c.def(
      "all_to_all",
      [](nb::handle self, nb::handle output_list, nb::handle input_list, double timeout,
         nb::handle async_op) {
        Arrays outputs(output_list, Access::Write, "output_tensor_list");
        Arrays inputs(input_list, Access::Read, "input_tensor_list");
        return submit(
            self,
            core_of(self).all_to_all(outputs.take_buffers(), inputs.take_buffers()),
            timeout, async_op, outputs, inputs);
      },
      "output_list"_a, "input_list"_a, "timeout"_a, "async_op"_a.none(),
      ALLHANDS_SIGNATURE(
          "all_to_all",
          "output_list: list[typing.Any], input_list: list[typing.Any], "));
  c.def(
      "all_to_all_single",
      [](nb::handle self, nb::handle output, nb::handle input,
         const Counts& output_splits, const Counts& input_splits, double timeout,
         nb::handle async_op) {
        const Array result(output, Access::Write, "output");
        const Array source(input, Access::Read, "input");
        return submit(self,
                      core_of(self).all_to_all(pieces(result.buffer(), output_splits),
                                               pieces(source.buffer(), input_splits)),
                      timeout, async_op, result, source);
      },
      "output"_a.none(), "input"_a.none(), "output_splits"_a, "input_splits"_a,
      "timeout"_a, "async_op"_a.none(),
      ALLHANDS_SIGNATURE("all_to_all_single",
                         "output: typing.Any, input: typing.Any, output_splits: "
                         "collections.abc.Sequence[int], input_splits: "
                         "collections.abc.Sequence[int], "));
  c.def(
      "barrier",
      [](nb::handle self, double timeout, nb::handle async_op) {
        return submit(self, core_of(self).barrier(), timeout, async_op);
      },
      "timeout"_a, "async_op"_a.none(), ALLHANDS_SIGNATURE("barrier", ""));
}

}  // namespace

void bind_collectives(CommunicatorClass& c) {
  bind_reductions(c);
  bind_one_to_all(c);
  bind_all_to_all(c);
}

}  // namespace allhands::python
