#include "allhands/python/array.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>

#include "allhands/base/error.hpp"
#include "allhands/python/buffer.hpp"
#include "allhands/python/imported.hpp"
#include "allhands/python/numpy_array.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace allhands::python {
namespace {

// As much of struct DLPackExchangeAPI of DLPack 1.x (dlpack.h) as is needed here.
struct DLPackExchange {
  std::uint32_t major, minor;
  const DLPackExchange* previous;
  void* managed_tensor_allocator;
  void* managed_tensor_from_py_object;
  void* managed_tensor_to_py_object;
  int (*tensor_from_py_object)(void* object, nb::dlpack::dltensor* tensor);
};

struct TensorType {
  PyTypeObject* type;
  const DLPackExchange* exchange;
  PyObject* is_lazy;  // of a tensor: is its value not what its memory holds?
};

// Only grows; read and written with the GIL. What it refers to is never freed.
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

// The one at hand, for the types that are at most 64 bits wide.
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
      break;
    default:  // complex: may be conjugated lazily
      break;
  }
  return std::nullopt;
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

// Nothing: not the usual tensor.
std::optional<Buffer> read_tensor(const TensorType& type, nb::handle array) {
  nb::dlpack::dltensor tensor;
  if (type.exchange->tensor_from_py_object(array.ptr(), &tensor) != 0) {
    PyErr_Clear();  // sparse, nested, of a dtype that DLPack does not have
    return std::nullopt;
  }
  const std::optional<DType> dtype = dtype_of(tensor.dtype);
  if (!dtype || tensor.device.device_type != nb::device::cpu::value ||
      !is_contiguous(tensor) || is_lazy(type, array))
    return std::nullopt;
  Buffer buffer;
  buffer.data = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  buffer.dtype = *dtype;
  buffer.count = 1;
  for (std::int32_t d = 0; d < tensor.ndim; ++d)
    buffer.count *= static_cast<std::size_t>(tensor.shape[d]);
  if (tensor.data == nullptr && buffer.count != 0) return std::nullopt;
  return buffer;
}

// Nothing: not the usual array.
std::optional<Buffer> read_on_the_spot(nb::handle array, Access access) {
  PyTypeObject* const type = Py_TYPE(array.ptr());
  if (type == numpy_array_type()) {
    auto buffer = read_numpy(array, access == Access::Write);
    return buffer && buffer->is_contiguous() ? std::move(buffer) : std::nullopt;
  }
  for (const TensorType& known : tensor_types())
    if (known.type == type) return read_tensor(known, array);
  return std::nullopt;
}

nb::object as_buffer(nb::handle array, Access access, const char* name) {
  static PyObject* const function = imported("allhands.arrays", "as_buffer");
  return nb::handle(function)(array, "writable"_a = access == Access::Write,
                              "name"_a = name);
}

void register_dlpack(nb::handle type, nb::capsule api, nb::object is_lazy) {
  const auto* exchange = static_cast<const DLPackExchange*>(api.data());
  while (exchange != nullptr && exchange->major != 1) exchange = exchange->previous;
  if (exchange == nullptr) return;  // as_buffer takes them
  tensor_types().push_back(
      {reinterpret_cast<PyTypeObject*>(nb::borrow(type).release().ptr()), exchange,
       is_lazy.release().ptr()});
}

nb::tuple items_of(nb::handle list, const char* name) {
  if (PyList_Check(list.ptr())) return nb::steal<nb::tuple>(PyList_AsTuple(list.ptr()));
  throw Error(ErrorKind::Type,
              "Invalid function argument. Expected parameter `" + std::string(name) +
                  "` of type list of arrays, but got " +
                  nb::cast<std::string>(nb::str(list.type())) + " instead.");
}

}  // namespace

Array::Array(nb::handle array, Access access, const char* name)
    : given_(array), owner_(array) {
  if (auto buffer = read_on_the_spot(array, access)) {
    buffer_ = std::move(*buffer);
    return;
  }
  made_ = as_buffer(array, access, name);
  owner_ = made_;
  buffer_ = nb::cast<const PyBuffer&>(made_).buffer();
}

nb::list Array::listed() const {
  nb::list list;
  list.append(given_);
  return list;
}

// Another thread may change the list, so what it held is kept.
Arrays::Arrays(nb::handle list, Access access, const char* name)
    : given_(nb::borrow(list)), owners_(items_of(list, name)) {
  buffers_.reserve(owners_.size());
  std::vector<nb::object> made;  // of unusual arrays
  for (const nb::handle item : owners_) {
    const Array array(item, access, name);
    buffers_.push_back(array.buffer());
    if (!array.owner().is(item)) made.push_back(array.owner());
  }
  if (made.empty()) return;
  nb::list all(owners_);
  for (const nb::object& object : made) all.append(object);
  owners_ = nb::tuple(all);
}

void bind_array(nb::module_& m) {
  m.def("register_dlpack", &register_dlpack, "type"_a, "api"_a, "is_lazy"_a,
        nb::sig("def register_dlpack(type: type, api: object, is_lazy: "
                "collections.abc.Callable[[typing.Any], bool]) -> None"),
        "Reads arrays of exactly this type through its `__dlpack_c_exchange_api__`. "
        "`is_lazy` says of one whether its value is not what its memory holds.");
}

}  // namespace allhands::python
