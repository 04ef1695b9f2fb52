#include "allhands/python/tensor.hpp"

#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace nb = nanobind;
using namespace nb::literals;

namespace allhands::python {
namespace {

// The part of struct DLPackExchangeAPI of DLPack 1.x (dlpack.h) that is needed here.
struct DLPackExchange {
  std::uint32_t major, minor;
  const DLPackExchange* previous;
  void* managed_tensor_allocator;
  void* managed_tensor_from_py_object;
  void* managed_tensor_to_py_object;
  int (*tensor_from_py_object)(void* object, nb::dlpack::dltensor* tensor);
};

// A C function of the library about the tensor behind a handle; a result other than 0
// means failure.
using StorageQuery = int (*)(void* handle, std::int64_t* answer);

struct TensorType {
  PyTypeObject* type;
  const DLPackExchange* exchange;
  PyObject* is_lazy;             // of a tensor: does its value differ from its memory?
  std::size_t handle_at;         // offset of the handle in the Python object
  StorageQuery storage_bytes;    // length of the storage
  StorageQuery elements_before;  // in the storage
};

// Only grows; read and written with the GIL. The objects that it refers to are never
// freed.
std::vector<TensorType>& tensor_types() {
  static std::vector<TensorType> types;
  return types;
}

std::optional<DType> integer_of(int bits, bool is_signed) {
  switch (bits) {
    case 8:
      return is_signed ? DType::Int8 : DType::UInt8;
    case 16:
      return is_signed ? DType::Int16 : DType::UInt16;
    case 32:
      return is_signed ? DType::Int32 : DType::UInt32;
    case 64:
      return is_signed ? DType::Int64 : DType::UInt64;
    default:
      return std::nullopt;
  }
}

// The codes of DLPack 1.1 for 8-bit floats, which nanobind does not name.
std::optional<DType> byte_float_of(std::uint8_t code) {
  switch (code) {
    case 10:
      return DType::Float8E4M3Fn;
    case 11:
      return DType::Float8E4M3FnUz;
    case 12:
      return DType::Float8E5M2;
    case 13:
      return DType::Float8E5M2FnUz;
    case 14:
      return DType::Float8E8M0Fnu;
    default:
      return std::nullopt;
  }
}

// The same dtype here, for types of at most 64 bits. Not for complex numbers: such a
// tensor may be conjugated lazily.
std::optional<DType> dtype_of(nb::dlpack::dtype dtype) {
  using Code = nb::dlpack::dtype_code;
  if (dtype.lanes != 1) return std::nullopt;
  switch (static_cast<Code>(dtype.code)) {
    case Code::Bool:
      return DType::Bool;
    case Code::Int:
      return integer_of(dtype.bits, true);
    case Code::UInt:
      return integer_of(dtype.bits, false);
    case Code::Bfloat:
      return DType::BFloat16;
    case Code::Float:
      if (dtype.bits == 16) return DType::Float16;
      if (dtype.bits == 32) return DType::Float32;
      if (dtype.bits == 64) return DType::Float64;
      return std::nullopt;
    default:
      return byte_float_of(dtype.code);
  }
}

bool is_contiguous(const nb::dlpack::dltensor& tensor) {
  std::int64_t stride = 1;
  for (std::int32_t d = tensor.ndim; d-- > 0; stride *= tensor.shape[d])
    if (tensor.shape[d] != 1 && tensor.strides[d] != stride) return false;
  return true;
}

bool is_lazy(const TensorType& type, nb::handle tensor) {
  PyObject* const arguments[] = {tensor.ptr()};
  const nb::object answer =
      nb::steal(PyObject_Vectorcall(type.is_lazy, arguments, 1, nullptr));
  if (!answer.is_valid()) nb::raise_python_error();
  return answer.ptr() != Py_False;
}

// How many elements of `item_bytes` the storage has from the tensor's first one on. A
// storage can be resized while its tensors keep their shapes.
std::optional<std::size_t> elements_in_storage(const TensorType& type,
                                               nb::handle tensor,
                                               std::size_t item_bytes) {
  void* const handle = reinterpret_cast<std::byte*>(tensor.ptr()) + type.handle_at;
  std::int64_t bytes = 0, before = 0;
  if (type.storage_bytes(handle, &bytes) != 0 ||
      type.elements_before(handle, &before) != 0)
    return std::nullopt;
  const auto elements = static_cast<std::size_t>(bytes) / item_bytes;
  const auto first = static_cast<std::size_t>(before);
  return elements - std::min(first, elements);
}

bool is_within_storage(const TensorType& type, nb::handle tensor,
                       const Buffer& buffer) {
  const auto elements = elements_in_storage(type, tensor, size_of(buffer.dtype));
  return elements && buffer.count <= *elements;
}

std::optional<nb::dlpack::dltensor> layout_of(const TensorType& type,
                                              nb::handle array) {
  nb::dlpack::dltensor tensor;
  if (type.exchange->tensor_from_py_object(array.ptr(), &tensor) == 0) return tensor;
  PyErr_Clear();  // sparse, nested, or of a dtype that DLPack lacks
  return std::nullopt;
}

std::byte* data_of(const nb::dlpack::dltensor& tensor) {
  return static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
}

const TensorType* type_of(nb::handle tensor) {
  for (const TensorType& known : tensor_types())
    if (known.type == Py_TYPE(tensor.ptr())) return &known;
  return nullptr;
}

// Returns nothing if it is not the usual tensor.
std::optional<Buffer> read(const TensorType& type, nb::handle array) {
  const std::optional<nb::dlpack::dltensor> layout = layout_of(type, array);
  if (!layout) return std::nullopt;
  const nb::dlpack::dltensor& tensor = *layout;
  const std::optional<DType> dtype = dtype_of(tensor.dtype);
  if (!dtype || tensor.device.device_type != nb::device::cpu::value ||
      !is_contiguous(tensor) || is_lazy(type, array))
    return std::nullopt;
  Buffer buffer;
  buffer.data = data_of(tensor);
  buffer.dtype = *dtype;
  buffer.count = 1;
  for (std::int32_t d = 0; d < tensor.ndim; ++d)
    buffer.count *= static_cast<std::size_t>(tensor.shape[d]);
  if (!is_within_storage(type, array, buffer)) return std::nullopt;
  return buffer;
}

StorageQuery query_at(std::uintptr_t address) {
  return reinterpret_cast<StorageQuery>(address);
}

void register_tensors(nb::handle type, nb::capsule api, nb::object is_lazy,
                      std::size_t handle_at, std::uintptr_t storage_bytes,
                      std::uintptr_t elements_before) {
  const auto* exchange = static_cast<const DLPackExchange*>(api.data());
  while (exchange != nullptr && exchange->major != 1) exchange = exchange->previous;
  if (exchange == nullptr) return;  // as_buffer reads such tensors
  tensor_types().push_back(
      {reinterpret_cast<PyTypeObject*>(nb::borrow(type).release().ptr()), exchange,
       is_lazy.release().ptr(), handle_at, query_at(storage_bytes),
       query_at(elements_before)});
}

}  // namespace

std::optional<Buffer> read_tensor(nb::handle tensor) {
  const TensorType* const type = type_of(tensor);
  return type == nullptr ? std::nullopt : read(*type, tensor);
}

std::optional<ArrayMemory> memory_of_tensor(nb::handle tensor) {
  const TensorType* const type = type_of(tensor);
  if (type == nullptr) return std::nullopt;
  const std::optional<nb::dlpack::dltensor> layout = layout_of(*type, tensor);
  if (!layout || layout->device.device_type != nb::device::cpu::value)
    return std::nullopt;
  const std::size_t item_bytes = layout->dtype.bits * layout->dtype.lanes / 8u;
  if (item_bytes == 0) return std::nullopt;
  const auto elements = elements_in_storage(*type, tensor, item_bytes);
  if (!elements) return std::nullopt;
  return ArrayMemory{data_of(*layout), *elements * item_bytes};
}

void bind_tensor(nb::module_& m) {
  m.def("register_tensors", &register_tensors, "type"_a, "api"_a, "is_lazy"_a,
        "handle_at"_a, "storage_bytes"_a, "elements_before"_a,
        nb::sig("def register_tensors(type: type, api: object, is_lazy: "
                "collections.abc.Callable[[typing.Any], bool], handle_at: int, "
                "storage_bytes: int, elements_before: int) -> None"),
        "Read arrays of exactly this type through its `__dlpack_c_exchange_api__`.\n\n"
        "Args:\n"
        "    is_lazy: returns whether the memory of an array lacks its value.\n"
        "    handle_at: the offset in an object of the handle that the C functions "
        "take.\n"
        "    storage_bytes: the address of a C function that returns the bytes of the "
        "storage.\n"
        "    elements_before: the address of a C function that returns how many "
        "elements of the storage come before the first one.");
}

}  // namespace allhands::python
