#include "allhands/python/buffer.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <string>

#include "allhands/base/error.hpp"

namespace nb = nanobind;

namespace allhands::python {
namespace {

// A struct-module format of one element in native byte order, as NumPy writes it.
std::optional<DType> dtype_of(const char* format, std::size_t size) {
  if (format == nullptr) return DType::UInt8;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  if (std::strcmp(format, "?") == 0) return DType::Bool;
  if (std::strcmp(format, "e") == 0) return DType::Float16;
  if (std::strcmp(format, "f") == 0) return DType::Float32;
  if (std::strcmp(format, "d") == 0) return DType::Float64;
  if (std::strcmp(format, "Zf") == 0) return DType::Complex64;
  if (std::strcmp(format, "Zd") == 0) return DType::Complex128;
  if (std::strlen(format) == 1 && std::strchr("bhilqn", *format) != nullptr)
    return integer_of(size, true);
  if (std::strlen(format) == 1 && std::strchr("BHILQN", *format) != nullptr)
    return integer_of(size, false);
  return std::nullopt;
}

std::size_t product(const std::int64_t* shape, std::size_t ndim) {
  std::size_t count = 1;
  for (std::size_t i = 0; i < ndim; ++i) count *= static_cast<std::size_t>(shape[i]);
  return count;
}

std::vector<Dimension> layout(const std::int64_t* shape, const std::int64_t* strides,
                              std::size_t ndim) {
  std::vector<Dimension> dimensions;
  for (std::size_t i = 0; i < ndim; ++i) dimensions.push_back({shape[i], strides[i]});
  return dimensions;
}

}  // namespace

std::optional<DType> integer_of(std::size_t size, bool is_signed) {
  switch (size) {
    case 1:
      return is_signed ? DType::Int8 : DType::UInt8;
    case 2:
      return is_signed ? DType::Int16 : DType::UInt16;
    case 4:
      return is_signed ? DType::Int32 : DType::UInt32;
    case 8:
      return is_signed ? DType::Int64 : DType::UInt64;
    default:
      return std::nullopt;
  }
}

BufferView::BufferView(nb::handle object, bool writable) {
  const int flags = writable ? PyBUF_RECORDS : PyBUF_RECORDS_RO;
  if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) PyErr_Clear();
}

BufferView::~BufferView() {
  if (view_.obj != nullptr) PyBuffer_Release(&view_);
}

bool BufferView::is_contiguous() const {
  return view_.obj != nullptr && PyBuffer_IsContiguous(&view_, 'C');
}

std::optional<Buffer> BufferView::buffer() const {
  if (view_.obj == nullptr) return std::nullopt;
  static_assert(sizeof(Py_ssize_t) == sizeof(std::int64_t));
  const auto ndim = static_cast<std::size_t>(view_.ndim);
  const auto* shape = reinterpret_cast<const std::int64_t*>(view_.shape);
  const auto dtype = dtype_of(view_.format, static_cast<std::size_t>(view_.itemsize));
  if (!dtype) return std::nullopt;
  Buffer buffer;
  buffer.data = view_.buf;
  buffer.dtype = *dtype;
  buffer.count = product(shape, ndim);
  if (!is_contiguous())
    buffer.dimensions =
        layout(shape, reinterpret_cast<const std::int64_t*>(view_.strides), ndim);
  return buffer;
}

PyBuffer::PyBuffer(std::uintptr_t address, DType dtype,
                   const std::vector<std::int64_t>& shape,
                   const std::optional<std::vector<std::int64_t>>& strides,
                   nb::object owner)
    : owner_(std::move(owner)) {
  if (strides && strides->size() != shape.size())
    throw Error(ErrorKind::Value, "Buffer: " + std::to_string(strides->size()) +
                                      " strides for " + std::to_string(shape.size()) +
                                      " dimensions");
  buffer_.data = reinterpret_cast<void*>(address);
  buffer_.dtype = dtype;
  buffer_.count = product(shape.data(), shape.size());
  if (strides) buffer_.dimensions = layout(shape.data(), strides->data(), shape.size());
}

void bind_buffer(nb::module_& m) {
  auto dtypes = nb::enum_<DType>(m, "DType", "Element types the core knows.");
  static constexpr const char* kNames[kNumDTypes] = {
      "Bool",     "Int8",    "Int16",   "Int32",     "Int64",
      "UInt8",    "UInt16",  "UInt32",  "UInt64",    "Float16",
      "BFloat16", "Float32", "Float64", "Complex64", "Complex128"};
  for (int i = 0; i < kNumDTypes; ++i) dtypes.value(kNames[i], static_cast<DType>(i));

  nb::class_<PyBuffer>(m, "Buffer",
                       "An array as the core sees it; keeps its memory alive.")
      .def(nb::init<std::uintptr_t, DType, const std::vector<std::int64_t>&,
                    const std::optional<std::vector<std::int64_t>>&, nb::object>(),
           nb::arg("address"), nb::arg("dtype"), nb::arg("shape"),
           nb::arg("strides").none(), nb::arg("owner").none(),
           "Memory at `address`, kept alive by `owner`; strides in bytes, None where "
           "contiguous in C order.")
      .def_static(
          "from_buffer_protocol",
          [](nb::object array, bool writable) -> std::optional<PyBuffer> {
            auto buffer = BufferView(array, writable).buffer();
            if (!buffer) return std::nullopt;
            return PyBuffer(std::move(*buffer), std::move(array));
          },
          nb::arg("array"), nb::arg("writable"),
          "The memory of a numpy.ndarray through the buffer protocol (PEP 3118); None "
          "if that refuses it.")
      .def_prop_ro("address",
                   [](const PyBuffer& self) {
                     return reinterpret_cast<std::uintptr_t>(self.buffer().data);
                   })
      .def_prop_ro("dtype", [](const PyBuffer& self) { return self.buffer().dtype; })
      .def_prop_ro("count", [](const PyBuffer& self) { return self.buffer().count; })
      .def_prop_ro("num_bytes",
                   [](const PyBuffer& self) { return self.buffer().num_bytes(); })
      .def_prop_ro("is_contiguous",
                   [](const PyBuffer& self) { return self.buffer().is_contiguous(); });
}

}  // namespace allhands::python
