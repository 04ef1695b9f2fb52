// The collectives for Python, one row each. A row defines the method that takes
// separate arguments, and how a Call of that name is carried out.
#include "allhands/python/collectives.hpp"

#include <nanobind/stl/string.h>

#include <string>
#include <utility>

#include "allhands/arena/collectives.hpp"
#include "allhands/base/error.hpp"
#include "allhands/python/request.hpp"
#include "allhands/python/sparse.hpp"
#include "allhands/python/staged.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace allhands::python {
namespace {

using Self = PyCommunicator&;

bool is_true(nb::handle value) {
  const int result = PyObject_IsTrue(value.ptr());
  if (result < 0) nb::raise_python_error();
  return result == 1;
}

constexpr CollectiveRow kRows[] = {
    {.name = "all_reduce",
     .collective = kAllReduce,
     .input = {"tensor", Form::Array},
     .in_place = InPlace::OnAll},
    {.name = "reduce",
     .collective = kReduce,
     .input = {"tensor", Form::Array},
     .in_place = InPlace::OnRoot,
     .has_root = true},
    {.name = "reduce_scatter",
     .collective = kReduceScatter,
     .output = {"output", Form::Array},
     .input = {"input_list", Form::List}},
    {.name = "reduce_scatter_single",
     .collective = kReduceScatter,
     .output = {"output", Form::Array},
     .input = {"input", Form::Shares}},
    {.name = "broadcast",
     .collective = kBroadcast,
     .input = {"tensor", Form::Array},
     .in_place = InPlace::OffRoot,
     .has_root = true},
    {.name = "gather",
     .collective = kGather,
     .output = {"gather_list", Form::ListOfRoot},
     .input = {"tensor", Form::Array},
     .has_root = true},
    {.name = "scatter",
     .collective = kScatter,
     .output = {"tensor", Form::Array},
     .input = {"scatter_list", Form::ListOfRoot},
     .has_root = true},
    {.name = "all_gather",
     .collective = kAllGather,
     .output = {"tensor_list", Form::List},
     .input = {"tensor", Form::Array}},
    {.name = "all_gather_single",
     .collective = kAllGather,
     .output = {"output_tensor", Form::Shares},
     .input = {"input_tensor", Form::Array}},
    {.name = "all_to_all",
     .collective = kAllToAll,
     .output = {"output_tensor_list", Form::List},
     .input = {"input_tensor_list", Form::List}},
    {.name = "all_to_all_single",
     .collective = kAllToAll,
     .output = {"output", Form::Rows},
     .input = {"input", Form::Rows}},
    {.name = "gather_single",
     .collective = kGather,
     .output = {"gather_tensor", Form::SharesOfRoot},
     .input = {"tensor", Form::Array},
     .has_root = true},
    {.name = "scan",
     .collective = kScan,
     .output = {"output", Form::Array},
     .input = {"input", Form::Array}},
    {.name = "exscan",
     .collective = kExscan,
     .output = {"output", Form::Array},
     .input = {"input", Form::Array}},
    {.name = "all_reduce_coalesced",
     .collective = kAllReduceCoalesced,
     .input = {"tensors", Form::List},
     .in_place = InPlace::OnAll},
    {.name = "all_gather_coalesced",
     .collective = kAllGatherCoalesced,
     .output = {"output_tensor_lists", Form::Lists},
     .input = {"input_tensor_list", Form::List}},
    {.name = "all_gather_single_coalesced",
     .collective = kAllGatherCoalesced,
     .output = {"outputs", Form::SharesOfEach},
     .input = {"inputs", Form::List}},
    {.name = "reduce_scatter_single_coalesced",
     .collective = kReduceScatterCoalesced,
     .output = {"outputs", Form::List},
     .input = {"inputs", Form::SharesOfEach}},
    {.name = "barrier", .collective = kBarrier},
};

// "root: int, ", "tensor: typing.Any, ", ...
std::string parameter(const Side& side) {
  const bool is_list = side.form == Form::List || side.form == Form::ListOfRoot ||
                       side.form == Form::Lists || side.form == Form::SharesOfEach;
  const bool is_of_root =
      side.form == Form::ListOfRoot || side.form == Form::SharesOfRoot;
  return std::string(side.name) + ": " + (is_list ? "list[typing.Any]" : "typing.Any") +
         (is_of_root ? " | None, " : ", ");
}

std::string signature(const CollectiveRow& row, const std::string& parameters) {
  return "def " + std::string(row.name) + "(self, " + parameters +
         "timeout: datetime.timedelta | None, async_op: bool) -> typing.Any";
}

// Binds the method of a row. It takes the arrays in the order of the public function,
// then root, reduce operation or splits, then these two.
#define ALLHANDS_LIMITS "timeout"_a.none(), "async_op"_a

void bind_in_place(CommunicatorClass& c, const CollectiveRow& row) {
  const nb::arg tensor(row.input.name);
  const std::string array = parameter(row.input);
  if (row.has_root && row.collective.is_reduction)
    c.def(
        row.name,
        [&row](Self self, nb::handle tensor, int root, nb::handle op,
               nb::handle timeout, nb::handle async_op) {
          return carry_out(self, row, {.input = tensor, .root = root, .reduce_op = op},
                           timeout, async_op);
        },
        tensor.none(), "root"_a, "op"_a.none(), ALLHANDS_LIMITS,
        nb::sig(signature(row, array + "root: int, op: typing.Any, ").c_str()));
  else if (row.has_root)
    c.def(
        row.name,
        [&row](Self self, nb::handle tensor, int root, nb::handle timeout,
               nb::handle async_op) {
          return carry_out(self, row, {.input = tensor, .root = root}, timeout,
                           async_op);
        },
        tensor.none(), "root"_a, ALLHANDS_LIMITS,
        nb::sig(signature(row, array + "root: int, ").c_str()));
  else
    c.def(
        row.name,
        [&row](Self self, nb::handle tensor, nb::handle op, nb::handle timeout,
               nb::handle async_op) {
          return carry_out(self, row, {.input = tensor, .reduce_op = op}, timeout,
                           async_op);
        },
        tensor.none(), "op"_a.none(), ALLHANDS_LIMITS,
        nb::sig(signature(row, array + "op: typing.Any, ").c_str()));
}

// The array that every rank passes comes first.
void bind_rooted(CommunicatorClass& c, const CollectiveRow& row) {
  const bool is_gather = row.output.form != Form::Array;
  const Side &every = is_gather ? row.input : row.output,
             &roots = is_gather ? row.output : row.input;
  c.def(
      row.name,
      [&row, is_gather](Self self, nb::handle every, nb::handle roots, int root,
                        nb::handle timeout, nb::handle async_op) {
        return carry_out(self, row,
                         {.output = is_gather ? roots : every,
                          .input = is_gather ? every : roots,
                          .root = root},
                         timeout, async_op);
      },
      nb::arg(every.name).none(), nb::arg(roots.name).none(), "root"_a, ALLHANDS_LIMITS,
      nb::sig(
          signature(row, parameter(every) + parameter(roots) + "root: int, ").c_str()));
}

void bind_two_sided(CommunicatorClass& c, const CollectiveRow& row) {
  const nb::arg output(row.output.name), input(row.input.name);
  const std::string arrays = parameter(row.output) + parameter(row.input);
  if (row.output.form == Form::Rows)
    c.def(
        row.name,
        [&row](Self self, nb::handle output, nb::handle input, nb::handle output_splits,
               nb::handle input_splits, nb::handle timeout, nb::handle async_op) {
          return carry_out(self, row,
                           {.output = output,
                            .input = input,
                            .output_splits = output_splits,
                            .input_splits = input_splits},
                           timeout, async_op);
        },
        output.none(), input.none(), "output_splits"_a.none(), "input_splits"_a.none(),
        ALLHANDS_LIMITS,
        nb::sig(
            signature(row, arrays +
                               "output_splits: collections.abc.Sequence[int] | None, "
                               "input_splits: collections.abc.Sequence[int] | None, ")
                .c_str()));
  else if (row.collective.is_reduction)
    c.def(
        row.name,
        [&row](Self self, nb::handle output, nb::handle input, nb::handle op,
               nb::handle timeout, nb::handle async_op) {
          return carry_out(self, row,
                           {.output = output, .input = input, .reduce_op = op}, timeout,
                           async_op);
        },
        output.none(), input.none(), "op"_a.none(), ALLHANDS_LIMITS,
        nb::sig(signature(row, arrays + "op: typing.Any, ").c_str()));
  else
    c.def(
        row.name,
        [&row](Self self, nb::handle output, nb::handle input, nb::handle timeout,
               nb::handle async_op) {
          return carry_out(self, row, {.output = output, .input = input}, timeout,
                           async_op);
        },
        output.none(), input.none(), ALLHANDS_LIMITS,
        nb::sig(signature(row, arrays).c_str()));
}

void bind_row(CommunicatorClass& c, const CollectiveRow& row) {
  if (row.input.form == Form::None)
    c.def(
        row.name,
        [&row](Self self, nb::handle timeout, nb::handle async_op) {
          return carry_out(self, row, {}, timeout, async_op);
        },
        ALLHANDS_LIMITS, nb::sig(signature(row, "").c_str()));
  else if (row.in_place != InPlace::No)
    bind_in_place(c, row);
  else if (row.has_root)
    bind_rooted(c, row);
  else
    bind_two_sided(c, row);
}

}  // namespace

const CollectiveRow* find_row(std::string_view name) {
  for (const CollectiveRow& row : kRows)
    if (row.name == name) return &row;
  return nullptr;
}

nb::object carry_out(PyCommunicator& self, const CollectiveRow& row,
                     const Arguments& arguments, nb::handle timeout,
                     nb::handle async_op) try {
  const Communicator& core = self.core();
  Prepared prepared(row, arguments, core.rank(), core.size(), self.reduce_order());
  const Deadline::Duration limit = self.limit(timeout, row.name);
  if (!is_true(async_op)) {
    self.run(prepared.operation, limit);
    return nb::none();
  }
  return wrap(self.post(std::move(prepared.operation), prepared.owners(), limit), limit,
              nb::find(self), prepared.outputs(), prepared.read());
} catch (const nb::python_error& error) {
  const nb::bool_ is_async(is_true(async_op));
  if (is_refused_as_device(error))
    return carry_out_staged(self, row, arguments, timeout, is_async);
  if (row.collective.op != Op::AllReduce || !is_refused_as_sparse(error)) throw;
  return carry_out_sparse(self, arguments.input, arguments.reduce_op, timeout,
                          is_async);
}

nb::object make_request(PyCommunicator& self, const CollectiveRow& row,
                        const Arguments& arguments, nb::handle timeout) {
  const Communicator& core = self.core();
  Prepared prepared(row, arguments, core.rank(), core.size(), self.reduce_order());
  nb::object owners = prepared.owners();
  return nb::cast(Request(nb::find(self), std::move(prepared.operation),
                          std::move(owners), self.limit(timeout, row.name)));
}

void bind_collectives(CommunicatorClass& c) {
  for (const CollectiveRow& row : kRows) bind_row(c, row);
}

}  // namespace allhands::python
