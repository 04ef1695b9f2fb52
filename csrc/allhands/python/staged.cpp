#include "allhands/python/staged.hpp"

#include "allhands/python/imported.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace allhands::python {
namespace {

nb::object or_none(nb::handle given) {
  return given.is_valid() ? nb::borrow(given) : nb::none();
}

// The Call with these arguments; see src/allhands/backends/call.py.
nb::object call_of(const CollectiveRow& row, const Arguments& given, nb::handle timeout,
                   nb::handle async_op) {
  static PyObject* const type = imported("allhands.backends.call", "Call");
  const bool is_in_place = row.in_place != InPlace::No;
  nb::dict reduction;  // without one the Call has its default
  if (given.reduce_op.is_valid()) reduction["reduce_op"] = given.reduce_op;
  return nb::handle(type)(row.name, or_none(is_in_place ? given.input : given.output),
                          or_none(given.input), "timeout"_a = timeout,
                          "async_op"_a = async_op, "root"_a = given.root,
                          "output_splits"_a = or_none(given.output_splits),
                          "input_splits"_a = or_none(given.input_splits), **reduction);
}

}  // namespace

bool is_refused_as_device(const nb::python_error& error) {
  static PyObject* const type = imported("allhands.arrays.devices", "DeviceArrayError");
  return error.matches(type);
}

nb::object staged(PyCommunicator& self) { return nb::find(self).attr("staged"); }

nb::object carry_out_staged(PyCommunicator& self, const CollectiveRow& row,
                            const Arguments& arguments, nb::handle timeout,
                            nb::handle async_op) {
  return staged(self).attr("submit")(call_of(row, arguments, timeout, async_op));
}

}  // namespace allhands::python
