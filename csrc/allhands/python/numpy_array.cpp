#include "allhands/python/numpy_array.hpp"

#define NPY_NO_DEPRECATED_API NPY_1_23_API_VERSION
#define NO_IMPORT_ARRAY  // fields are read, no function is called
#include <numpy/ndarrayobject.h>

#include "allhands/python/imported.hpp"

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

}  // namespace

PyTypeObject* numpy_array_type() {
  static PyObject* const type = imported("numpy", "ndarray");
  return reinterpret_cast<PyTypeObject*>(type);
}

std::optional<Buffer> read_numpy(nanobind::handle array, bool writable) {
  if (!PyObject_TypeCheck(array.ptr(), numpy_array_type())) return std::nullopt;
  auto* const self = reinterpret_cast<PyArrayObject*>(array.ptr());
  const auto dtype = dtype_of(PyArray_TYPE(self));
  if (!dtype || !PyArray_ISNOTSWAPPED(self)) return std::nullopt;
  if (writable && !PyArray_ISWRITEABLE(self)) return std::nullopt;
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

}  // namespace allhands::python
