// Sparse arrays for Python: their parts go in and out.
#include "allhands/python/sparse.hpp"

#include <nanobind/nanobind.h>

#include <cstdint>
#include <utility>

#include "allhands/arena/collectives.hpp"
#include "allhands/arena/sparse.hpp"
#include "allhands/base/error.hpp"
#include "allhands/python/buffer.hpp"
#include "allhands/python/exported_array.hpp"
#include "allhands/python/imported.hpp"
#include "allhands/python/reduction.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace allhands::python {
namespace {

const Buffer& contiguous(nb::handle given) {
  const Buffer& buffer = nb::cast<const PyBuffer&>(given).buffer();
  if (!buffer.is_contiguous())
    throw Error(ErrorKind::Value, "parts of a sparse array must be contiguous");
  return buffer;
}

// Keeps the arrays that it was made of.
struct PySparseArray {
  PySparseArray(nb::object indices, nb::object values, std::size_t num_rows,
                std::size_t width)
      : owners(nb::make_tuple(indices, values)) {
    const Buffer& numbers = contiguous(indices);
    if (numbers.dtype != DType::Int64)
      throw Error(ErrorKind::Type, "indices of a sparse array must be int64");
    array.indices = {static_cast<const std::int64_t*>(numbers.data), numbers.count};
    array.values = contiguous(values);
    array.num_rows = num_rows;
    array.width = width;
  }

  SparseArray array;
  nb::object owners;
};

nb::object all_reduce(PyCommunicator& self, nb::handle sparse, nb::handle op,
                      nb::handle timeout, bool async_op) {
  const Reduction reduction("all_reduce", op);
  const Operation operation = {
      .collective = &kAllReduceSparse,
      .reduce_op = reduction.op,
      .reduce_order = self.reduce_order(),
      .factor = reduction.factor,
      .sparse = &nb::cast<PySparseArray&>(sparse).array,
  };
  self.core().check(operation);
  const Deadline::Duration limit = self.limit(timeout, "all_reduce");
  if (async_op)
    return wrap(self.post(operation, nb::borrow(sparse), limit), limit, nb::find(self),
                nb::list(), {});
  self.run(operation, limit);
  return nb::none();
}

}  // namespace

void bind_sparse_array(nb::module_& m) {
  nb::class_<PySparseArray>(
      m, "SparseArray",
      "A dense array with few rows that are not zero, for all_reduce_parts.")
      .def(nb::init<nb::object, nb::object, std::size_t, std::size_t>(), "indices"_a,
           "values"_a, "num_rows"_a, "width"_a,
           nb::sig("def __init__(self, indices: Buffer, values: Buffer, num_rows: int, "
                   "width: int) -> None"),
           "Take the rows `indices`, in ascending order, of an array of `num_rows` "
           "rows. `values` has these rows, with `width` elements each.")
      .def_prop_ro(
          "all_indices",
          [](nb::handle self) {
            auto& all = nb::cast<PySparseArray&>(self).array.all_indices;
            return export_int64s(all.data(), all.size(), as_owner(self));
          },
          nb::sig("def all_indices(self) -> numpy.typing.NDArray[numpy.int64]"),
          "The indices of the rows that any rank has; known when the operation has "
          "ended.")
      .def_prop_ro(
          "sums",
          [](nb::handle self) {
            const SparseArray& array = nb::cast<PySparseArray&>(self).array;
            return export_bytes(array.sums.get(), array.sums_bytes(), as_owner(self));
          },
          nb::sig("def sums(self) -> numpy.typing.NDArray[numpy.uint8]"),
          "The bytes of these rows after the reduction.");
}

void bind_sparse(CommunicatorClass& c) {
  c.def("all_reduce_parts", &all_reduce, "array"_a, "op"_a.none(), "timeout"_a.none(),
        "async_op"_a,
        nb::sig("def all_reduce_parts(self, array: SparseArray, op: typing.Any, "
                "timeout: datetime.timedelta | None, async_op: bool) -> typing.Any"),
        "Reduce a sparse array across all ranks. The array then holds the result.");
}

nb::object carry_out_sparse(PyCommunicator& self, nb::handle array, nb::handle op,
                            nb::handle timeout, nb::handle async_op) {
  return nb::find(self).attr("all_reduce_sparse")(array, op, timeout, async_op);
}

bool is_refused_as_sparse(const nb::python_error& error) {
  static PyObject* const type = imported("allhands.arrays.sparse", "SparseArrayError");
  return error.matches(type);
}

}  // namespace allhands::python
