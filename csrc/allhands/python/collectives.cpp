// The collectives for Python: arrays in, an Operation made, and what to do with it.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "allhands/python/array.hpp"
#include "allhands/python/communicator.hpp"
#include "allhands/python/pieces.hpp"
#include "allhands/python/reduction.hpp"
#include "allhands/python/request.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace allhands::python {
namespace {

using Self = PyCommunicator&;

Access write_if(bool is_output) { return is_output ? Access::Write : Access::Read; }

// None: an empty list.
nb::object list_or_none(nb::handle list) {
  return list.is_none() ? nb::list() : nb::borrow(list);
}

nb::list outputs_of() { return {}; }
template <class Output, class... Inputs>
nb::list outputs_of(const Output& output, const Inputs&...) {
  return output.listed();
}

// What every operation ends with; its outputs are the first of `arrays`. `async_op`
// False: runs it now, None; True: queues it, its Work; None: a Request for it.
template <class... Owners>
nb::object submit(Self self, Operation operation, nb::handle timeout,
                  nb::handle async_op, const Owners&... arrays) {
  const Deadline::Duration limit = self.limit(timeout);
  if (async_op.ptr() == Py_False) {
    self.run(operation, limit);
    return nb::none();
  }
  nb::object owners = nb::make_tuple(arrays.owner()...);
  if (async_op.ptr() == Py_True)
    return wrap(self.post(std::move(operation), std::move(owners), limit),
                outputs_of(arrays...));
  return nb::cast(
      Request(nb::find(self), std::move(operation), std::move(owners), limit));
}

#define ALLHANDS_SIGNATURE(name, parameters) \
  nb::sig("def " name "(self, " parameters   \
          "timeout: datetime.timedelta | None, async_op: bool | None) -> typing.Any")

void bind_reductions(CommunicatorClass& c) {
  c.def(
      "all_reduce",
      [](Self self, nb::handle tensor, nb::handle op, nb::handle timeout,
         nb::handle async_op) {
        const Array array(tensor, Access::Write, "tensor");
        const Reduction reduction("all_reduce", op);
        return submit(self,
                      self.core().all_reduce(array.buffer(), array.buffer(),
                                             reduction.op, reduction.factor),
                      timeout, async_op, array);
      },
      "tensor"_a.none(), "op"_a.none(), "timeout"_a.none(), "async_op"_a.none(),
      ALLHANDS_SIGNATURE("all_reduce", "tensor: typing.Any, op: typing.Any, "));
  c.def(
      "reduce",
      [](Self self, nb::handle tensor, int root, nb::handle op, nb::handle timeout,
         nb::handle async_op) {
        Communicator& core = self.core();
        const Array array(tensor, write_if(root == core.rank()), "tensor");
        const Reduction reduction("reduce", op);
        return submit(self,
                      core.reduce(array.buffer(), root, reduction.op, reduction.factor),
                      timeout, async_op, array);
      },
      "tensor"_a.none(), "root"_a, "op"_a.none(), "timeout"_a.none(),
      "async_op"_a.none(),
      ALLHANDS_SIGNATURE("reduce", "tensor: typing.Any, root: int, op: typing.Any, "));
  c.def(
      "reduce_scatter",
      [](Self self, nb::handle output, nb::handle input_list, nb::handle op,
         nb::handle timeout, nb::handle async_op) {
        const Array result(output, Access::Write, "output");
        Arrays inputs(input_list, Access::Read, "input_list");
        const Reduction reduction("reduce_scatter", op);
        return submit(self,
                      self.core().reduce_scatter(result.buffer(), inputs.take_buffers(),
                                                 reduction.op, reduction.factor),
                      timeout, async_op, result, inputs);
      },
      "output"_a.none(), "input_list"_a.none(), "op"_a.none(), "timeout"_a.none(),
      "async_op"_a.none(),
      ALLHANDS_SIGNATURE(
          "reduce_scatter",
          "output: typing.Any, input_list: list[typing.Any], op: typing.Any, "));
  c.def(
      "reduce_scatter_single",
      [](Self self, nb::handle output, nb::handle input, nb::handle op,
         nb::handle timeout, nb::handle async_op) {
        Communicator& core = self.core();
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
      "output"_a.none(), "input"_a.none(), "op"_a.none(), "timeout"_a.none(),
      "async_op"_a.none(),
      ALLHANDS_SIGNATURE("reduce_scatter_single",
                         "output: typing.Any, input: typing.Any, op: typing.Any, "));
}

void bind_one_to_all(CommunicatorClass& c) {
  c.def(
      "broadcast",
      [](Self self, nb::handle tensor, int root, nb::handle timeout,
         nb::handle async_op) {
        Communicator& core = self.core();
        const Array array(tensor, write_if(root != core.rank()), "tensor");
        return submit(self, core.broadcast(array.buffer(), root), timeout, async_op,
                      array);
      },
      "tensor"_a.none(), "root"_a, "timeout"_a.none(), "async_op"_a.none(),
      ALLHANDS_SIGNATURE("broadcast", "tensor: typing.Any, root: int, "));
  c.def(
      "gather",
      [](Self self, nb::handle tensor, nb::handle gather_list, int root,
         nb::handle timeout, nb::handle async_op) {
        const Array input(tensor, Access::Read, "tensor");
        Arrays outputs(list_or_none(gather_list), Access::Write, "gather_list");
        return submit(self,
                      self.core().gather(outputs.take_buffers(), input.buffer(), root),
                      timeout, async_op, outputs, input);
      },
      "tensor"_a.none(), "gather_list"_a.none(), "root"_a, "timeout"_a.none(),
      "async_op"_a.none(),
      ALLHANDS_SIGNATURE(
          "gather",
          "tensor: typing.Any, gather_list: list[typing.Any] | None, root: int, "));
  c.def(
      "scatter",
      [](Self self, nb::handle tensor, nb::handle scatter_list, int root,
         nb::handle timeout, nb::handle async_op) {
        const Array output(tensor, Access::Write, "tensor");
        Arrays inputs(list_or_none(scatter_list), Access::Read, "scatter_list");
        return submit(self,
                      self.core().scatter(output.buffer(), inputs.take_buffers(), root),
                      timeout, async_op, output, inputs);
      },
      "tensor"_a.none(), "scatter_list"_a.none(), "root"_a, "timeout"_a.none(),
      "async_op"_a.none(),
      ALLHANDS_SIGNATURE(
          "scatter",
          "tensor: typing.Any, scatter_list: list[typing.Any] | None, root: int, "));
}

void bind_all_to_all(CommunicatorClass& c) {
  c.def(
      "all_gather",
      [](Self self, nb::handle tensor_list, nb::handle tensor, nb::handle timeout,
         nb::handle async_op) {
        const Array input(tensor, Access::Read, "tensor");
        Arrays outputs(tensor_list, Access::Write, "tensor_list");
        return submit(self,
                      self.core().all_gather(outputs.take_buffers(), input.buffer()),
                      timeout, async_op, outputs, input);
      },
      "tensor_list"_a.none(), "tensor"_a.none(), "timeout"_a.none(),
      "async_op"_a.none(),
      ALLHANDS_SIGNATURE("all_gather",
                         "tensor_list: list[typing.Any], tensor: typing.Any, "));
  c.def(
      "all_gather_single",
      [](Self self, nb::handle output, nb::handle input, nb::handle timeout,
         nb::handle async_op) {
        Communicator& core = self.core();
        const Array result(output, Access::Write, "output_tensor");
        const Array source(input, Access::Read, "input_tensor");
        return submit(
            self,
            core.all_gather(shares("all_gather_single: the output", result.buffer(),
                                   source.buffer(), core.size()),
                            source.buffer()),
            timeout, async_op, result, source);
      },
      "output"_a.none(), "input"_a.none(), "timeout"_a.none(), "async_op"_a.none(),
      ALLHANDS_SIGNATURE("all_gather_single",
                         "output: typing.Any, input: typing.Any, "));
  c.def(
      "all_to_all",
      [](Self self, nb::handle output_list, nb::handle input_list, nb::handle timeout,
         nb::handle async_op) {
        Arrays outputs(output_list, Access::Write, "output_tensor_list");
        Arrays inputs(input_list, Access::Read, "input_tensor_list");
        return submit(
            self, self.core().all_to_all(outputs.take_buffers(), inputs.take_buffers()),
            timeout, async_op, outputs, inputs);
      },
      "output_list"_a.none(), "input_list"_a.none(), "timeout"_a.none(),
      "async_op"_a.none(),
      ALLHANDS_SIGNATURE(
          "all_to_all",
          "output_list: list[typing.Any], input_list: list[typing.Any], "));
  c.def(
      "all_to_all_single",
      [](Self self, nb::handle output, nb::handle input,
         const SplitSizes& output_splits, const SplitSizes& input_splits,
         nb::handle timeout, nb::handle async_op) {
        Communicator& core = self.core();
        const Array result(output, Access::Write, "output");
        const Array source(input, Access::Read, "input");
        return submit(
            self,
            core.all_to_all(
                rows("output", output, result.buffer(), output_splits, core.size()),
                rows("input", input, source.buffer(), input_splits, core.size())),
            timeout, async_op, result, source);
      },
      "output"_a.none(), "input"_a.none(), "output_splits"_a.none(),
      "input_splits"_a.none(), "timeout"_a.none(), "async_op"_a.none(),
      ALLHANDS_SIGNATURE("all_to_all_single",
                         "output: typing.Any, input: typing.Any, output_splits: "
                         "collections.abc.Sequence[int] | None, input_splits: "
                         "collections.abc.Sequence[int] | None, "));
  c.def(
      "barrier",
      [](Self self, nb::handle timeout, nb::handle async_op) {
        return submit(self, self.core().barrier(), timeout, async_op);
      },
      "timeout"_a.none(), "async_op"_a.none(), ALLHANDS_SIGNATURE("barrier", ""));
}

}  // namespace

void bind_collectives(CommunicatorClass& c) {
  bind_reductions(c);
  bind_one_to_all(c);
  bind_all_to_all(c);
}

}  // namespace allhands::python
