#include "allhands/python/reduction.hpp"

#include <nanobind/stl/string.h>

#include <string>

#include "allhands/base/error.hpp"
#include "allhands/python/imported.hpp"

namespace nb = nanobind;

namespace allhands::python {
namespace {

PyObject* plain_type() {
  static PyObject* const type = imported("allhands.options", "RedOpType");
  return type;
}

bool is_plain(nb::handle given) {
  return reinterpret_cast<PyObject*>(Py_TYPE(given.ptr())) == plain_type();
}

// The numbers are the same as in the core.
ReduceOp number_of(nb::handle plain) {
  return static_cast<ReduceOp>(PyLong_AsLong(plain.ptr()));
}

// An integer stays exact; one beyond 64 bits is a factor only of floats.
Factor factor_of(nb::handle number) {
  Factor factor = nb::cast<double>(number);
  if (!PyLong_Check(number.ptr())) return factor;
  std::int64_t value = 0;
  factor.is_integer = nb::try_cast(number, value, false);
  if (factor.is_integer)
    factor.integer = static_cast<std::uint64_t>(value);
  else
    factor.is_integer = nb::try_cast(number, factor.integer, false);
  return factor;
}

}  // namespace

std::optional<ReduceOp> plain_op(nb::handle given) {
  if (!is_plain(given)) return std::nullopt;
  const ReduceOp op = number_of(given);
  return op == ReduceOp::PremulSum ? std::nullopt : std::optional(op);
}

Reduction::Reduction(const char* operation, nb::handle given) {
  if (is_plain(given)) {
    op = number_of(given);
    if (op == ReduceOp::PremulSum)
      throw Error(ErrorKind::Type,
                  std::string(operation) +
                      ": PREMUL_SUM needs a factor: ReduceOp.PREMUL_SUM(0.5)");
    return;
  }
  const nb::object plain = nb::getattr(given, "op", nb::none());
  if (!is_plain(plain)) {
    const std::string text = nb::cast<std::string>(nb::repr(given));
    const nb::handle type = given.type();
    throw Error(ErrorKind::Type,
                std::string(operation) + ": op must be an allhands.ReduceOp, got " +
                    text + " of type " +
                    nb::cast<std::string>(type.attr("__module__")) + "." +
                    nb::cast<std::string>(type.attr("__qualname__")) +
                    (PyCallable_Check(given.ptr()) != 0
                         ? "; all_reduce_object and reduce_object take a function"
                         : ""));
  }
  op = number_of(plain);
  if (op == ReduceOp::PremulSum) factor = factor_of(given.attr("factor"));
}

}  // namespace allhands::python
