#include "allhands/python/numpy_array.hpp"

#define NPY_NO_DEPRECATED_API NPY_1_23_API_VERSION
#define NO_IMPORT_ARRAY  // fields are read, no function is called
#include <numpy/ndarrayobject.h>

#include <cstdint>

#include "allhands/python/imported.hpp"

namespace nb = nanobind;

namespace allhands::python {
namespace {

std::optional<DType> dtype_of(int number) {
  switch (number) {
    case NPY_BOOL:
      return DType::Bool;
    case NPY_BYTE:
      return DType::Int8;
    case NPY_UBYTE:
      return DType::UInt8;
    case NPY_SHORT:
      return DType::Int16;
    case NPY_USHORT:
      return DType::UInt16;
    case NPY_INT:
      return DType::Int32;
    case NPY_UINT:
      return DType::UInt32;
    case NPY_LONG:
      return sizeof(long) == 8 ? DType::Int64 : DType::Int32;
    case NPY_ULONG:
      return sizeof(long) == 8 ? DType::UInt64 : DType::UInt32;
    case NPY_LONGLONG:
      return DType::Int64;
    case NPY_ULONGLONG:
      return DType::UInt64;
    case NPY_HALF:
      return DType::Float16;
    case NPY_FLOAT:
      return DType::Float32;
    case NPY_DOUBLE:
      return DType::Float64;
    case NPY_CFLOAT:
      return DType::Complex64;
    case NPY_CDOUBLE:
      return DType::Complex128;
    default:
      return std::nullopt;
  }
}

bool is_array(PyObject* object) {
  return PyObject_TypeCheck(object, numpy_array_type()) != 0;
}

PyArrayObject* as_array(PyObject* object) {
  return reinterpret_cast<PyArrayObject*>(object);
}

// The type of the object between an array made by as_strided and the array it was made
// of.
PyTypeObject* link_type() {
  static PyObject* const type = [] {
    const nb::object array = nb::module_::import_("numpy").attr("empty")(1);
    const nb::object view =
        nb::module_::import_("numpy.lib.stride_tricks").attr("as_strided")(array);
    return nb::borrow(nb::object(view.attr("base")).type()).release().ptr();
  }();
  return reinterpret_cast<PyTypeObject*>(type);
}

// The array that owns the memory of a view; null if there is no such array.
PyArrayObject* owner_of(PyArrayObject* view) {
  PyArrayObject* owner = nullptr;
  for (PyObject* base = PyArray_BASE(view); base != nullptr;) {
    if (is_array(base)) {
      owner = as_array(base);
      base = PyArray_BASE(owner);
    } else if (Py_TYPE(base) == link_type()) {
      base = nb::object(nb::handle(base).attr("base")).ptr();  // kept alive by the link
    } else {
      return nullptr;
    }
  }
  return owner != nullptr && PyArray_CHKFLAGS(owner, NPY_ARRAY_OWNDATA) ? owner
                                                                        : nullptr;
}

std::intptr_t item_bytes(PyArrayObject* array) {
  if (const auto dtype = dtype_of(PyArray_TYPE(array)))
    return static_cast<std::intptr_t>(size_of(*dtype));
  const nb::handle object = reinterpret_cast<PyObject*>(array);
  return nb::cast<std::intptr_t>(object.attr("itemsize"));
}

struct Extent {
  std::intptr_t begin, end;
};

// The array must not be empty.
Extent extent_of(PyArrayObject* array) {
  const auto at = reinterpret_cast<std::intptr_t>(PyArray_DATA(array));
  Extent extent = {at, at + item_bytes(array)};
  for (int d = 0; d < PyArray_NDIM(array); ++d) {
    const npy_intp reach = (PyArray_DIM(array, d) - 1) * PyArray_STRIDE(array, d);
    (reach < 0 ? extent.begin : extent.end) += reach;
  }
  return extent;
}

bool is_empty(PyArrayObject* array) {
  for (int d = 0; d < PyArray_NDIM(array); ++d)
    if (PyArray_DIM(array, d) == 0) return true;
  return false;
}

}  // namespace

bool is_within_base(nb::handle given) {
  if (!is_array(given.ptr())) return true;
  PyArrayObject* const array = as_array(given.ptr());
  if (PyArray_BASE(array) == nullptr || is_empty(array)) return true;  // nearly always
  PyArrayObject* const owner = owner_of(array);
  if (owner == nullptr) return true;
  if (is_empty(owner)) return false;
  const Extent all = extent_of(owner), part = extent_of(array);
  return all.begin <= part.begin && part.end <= all.end;
}

PyTypeObject* numpy_array_type() {
  static PyObject* const type = imported("numpy", "ndarray");
  return reinterpret_cast<PyTypeObject*>(type);
}

std::optional<Buffer> read_numpy(nb::handle array, bool writable) {
  if (!is_array(array.ptr())) return std::nullopt;
  PyArrayObject* const self = as_array(array.ptr());
  const auto dtype = dtype_of(PyArray_TYPE(self));
  if (!dtype || !PyArray_ISNOTSWAPPED(self)) return std::nullopt;
  if (writable && !PyArray_ISWRITEABLE(self)) return std::nullopt;
  if (!is_within_base(array)) return std::nullopt;
  Buffer buffer;
  buffer.data = PyArray_DATA(self);
  buffer.dtype = *dtype;
  buffer.count = 1;
  for (int d = 0; d < PyArray_NDIM(self); ++d)
    buffer.count *= static_cast<std::size_t>(PyArray_DIM(self, d));
  if (!PyArray_IS_C_CONTIGUOUS(self))
    for (int d = 0; d < PyArray_NDIM(self); ++d)
      buffer.dimensions.push_back({PyArray_DIM(self, d), PyArray_STRIDE(self, d)});
  return buffer;
}

std::optional<ArrayMemory> memory_of_numpy(nb::handle array) {
  if (!is_array(array.ptr()) || !is_within_base(array)) return std::nullopt;
  PyArrayObject* const self = as_array(array.ptr());
  std::size_t bytes = static_cast<std::size_t>(item_bytes(self));
  for (int d = 0; d < PyArray_NDIM(self); ++d)
    bytes *= static_cast<std::size_t>(PyArray_DIM(self, d));
  return ArrayMemory{PyArray_DATA(self), bytes};
}

}  // namespace allhands::python
