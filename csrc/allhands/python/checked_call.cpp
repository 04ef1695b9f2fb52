// For engines of others: checks the arguments of a Call as the native engine checks
// them, and returns them as plain memory. It also offers the kernels that reduce and
// copy such memory.
#include "allhands/python/checked_call.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "allhands/base/error.hpp"
#include "allhands/kernels/pack.hpp"
#include "allhands/kernels/reduce.hpp"
#include "allhands/python/buffer.hpp"
#include "allhands/python/call_fields.hpp"
#include "allhands/python/collectives.hpp"
#include "allhands/python/gil.hpp"
#include "allhands/python/reduction.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace allhands::python {
namespace {

const CollectiveRow& row_of(const std::string& name) {
  const CollectiveRow* row = find_row(name);
  if (row == nullptr) throw Error(ErrorKind::Value, "there is no collective " + name);
  return *row;
}

class CheckedCall {
 public:
  CheckedCall(nb::handle call, int rank, int size)
      : row_(row_of(nb::cast<std::string>(call.attr("op")))),
        prepared_(row_, CallFields(call, row_).arguments(), rank, size),
        owners_(prepared_.owners()),
        written_(prepared_.outputs()) {}

  const char* name() const { return row_.collective.name; }
  int root() const { return prepared_.operation.root; }
  nb::list written() const { return written_; }

  std::vector<PyBuffer> inputs() const {
    const Operation& operation = prepared_.operation;
    return listed(row_.input.form == Form::Array, operation.input, operation.inputs);
  }
  std::vector<PyBuffer> outputs() const {
    if (row_.in_place == InPlace::OnAll || row_.in_place == InPlace::OffRoot)
      return inputs();
    const Operation& operation = prepared_.operation;
    return listed(row_.output.form == Form::Array, operation.output, operation.outputs);
  }

 private:
  std::vector<PyBuffer> listed(bool is_one, const Buffer& one,
                               const std::vector<Buffer>& list) const {
    std::vector<PyBuffer> found;
    if (is_one) found.emplace_back(one, owners_);
    for (const Buffer& buffer : list) found.emplace_back(buffer, owners_);
    return found;
  }

  const CollectiveRow& row_;
  const Prepared prepared_;
  const nb::object owners_;
  const nb::list written_;
};

void copy_all(const PyBuffer& from, const PyBuffer& to) {
  if (from.buffer().dtype != to.buffer().dtype ||
      from.buffer().count != to.buffer().count)
    throw Error(ErrorKind::Value,
                "copy_buffer: " + std::to_string(from.buffer().count) +
                    " elements of " + name_of(from.buffer().dtype) + " are to go to " +
                    std::to_string(to.buffer().count) + " of " +
                    name_of(to.buffer().dtype));
  const GilReleased unlocked;
  copy(from.buffer(), to.buffer(), 0, to.buffer().count);
}

// Reduces `inputs`, each with the operation that its rank passed, which has its factor.
void reduce_all(const PyBuffer& output, const std::vector<PyBuffer>& inputs,
                const nb::list& ops) {
  const Buffer& to = output.buffer();
  if (inputs.empty() || inputs.size() != ops.size())
    throw Error(ErrorKind::Value, "reduce_buffers: " + std::to_string(inputs.size()) +
                                      " inputs with " + std::to_string(ops.size()) +
                                      " operations; it needs one for each");
  std::vector<const void*> sources;
  std::vector<Factor> factors;
  ReduceOp op = ReduceOp::Sum;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Buffer& from = inputs[i].buffer();
    if (from.dtype != to.dtype || from.count != to.count || !from.is_contiguous() ||
        !to.is_contiguous())
      throw Error(ErrorKind::Value,
                  "reduce_buffers: input " + std::to_string(i) +
                      " is not as the output, or one is not contiguous");
    const Reduction reduction("reduce_buffers", ops[i]);
    op = reduction.op;
    sources.push_back(from.data);
    factors.push_back(reduction.factor);
    check_supported("reduce_buffers", to.dtype, op);
    if (op == ReduceOp::PremulSum) check_factor(to.dtype, reduction.factor);
  }
  const GilReleased unlocked;
  reduce(to.dtype, op, to.data, sources.data(), static_cast<int>(sources.size()),
         to.count, factors.data());
}

}  // namespace

void bind_checked_call(nb::module_& m) {
  nb::class_<CheckedCall>(
      m, "CheckedCall",
      "The Call of a collective as memory, for engines of other libraries.")
      .def(
          nb::init<nb::handle, int, int>(), "call"_a, "rank"_a, "size"_a,
          nb::sig("def __init__(self, call: typing.Any, rank: int, size: int) -> None"),
          "Check the arguments as the native engine does, with the same errors.")
      .def_prop_ro(
          "name", &CheckedCall::name,
          "The name of the collective, which is all_gather for all_gather_single.")
      .def_prop_ro("root", &CheckedCall::root,
                   "The root; -1 if the collective has none.")
      .def_prop_ro("inputs", &CheckedCall::inputs,
                   "The memory that it reads: one buffer, or one for each rank.")
      .def_prop_ro("outputs", &CheckedCall::outputs,
                   "The memory that it writes: one buffer, or one for each rank. In "
                   "place it is the memory that it reads.")
      .def_prop_ro("written", &CheckedCall::written,
                   nb::for_getter(nb::sig("def written(self, /) -> list[typing.Any]")),
                   "The arrays that it writes, as the caller passed them.");
  m.def("copy_buffer", &copy_all, "source"_a, "target"_a,
        "Copy all elements of an array of any layout to an array with as many elements "
        "of the same dtype.");
  m.def("reduce_buffers", &reduce_all, "output"_a, "inputs"_a, "ops"_a,
        nb::sig("def reduce_buffers(output: Buffer, inputs: Sequence[Buffer], ops: "
                "list[typing.Any]) -> None"),
        "Reduce the inputs in their order into `output`, with the numerics of the "
        "native engine. All arrays are contiguous, of one dtype and size. `ops` has "
        "the ReduceOp of each input, which may have a factor.");
}

}  // namespace allhands::python
