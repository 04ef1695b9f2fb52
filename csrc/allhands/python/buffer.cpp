#include "allhands/python/buffer.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "allhands/base/error.hpp"
#include "allhands/python/numpy_array.hpp"

namespace nb = nanobind;

namespace allhands::python {
namespace {

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

PyBuffer::PyBuffer(std::uintptr_t address, DType dtype,
                   const std::vector<std::int64_t>& shape,
                   const std::optional<std::vector<std::int64_t>>& strides,
                   nb::object owner)
    : owner_(std::move(owner)), shape_(shape) {
  if (strides && strides->size() != shape.size())
    throw Error(ErrorKind::Value, "Buffer: " + std::to_string(strides->size()) +
                                      " strides for " + std::to_string(shape.size()) +
                                      " dimensions");
  buffer_.data = reinterpret_cast<void*>(address);
  buffer_.dtype = dtype;
  buffer_.count = product(shape.data(), shape.size());
  if (strides) buffer_.dimensions = layout(shape.data(), strides->data(), shape.size());
}

std::size_t PyBuffer::length() const {
  if (!shape_) return nb::len(owner_);
  if (shape_->empty())
    throw nb::type_error("a buffer without dimensions has no length");
  return static_cast<std::size_t>(shape_->front());
}

void bind_buffer(nb::module_& m) {
  auto dtypes = nb::enum_<DType>(m, "DType", "The element types that the core knows.");
  static constexpr const char* kNames[kNumDTypes] = {
      "Bool",           "Int8",
      "Int16",          "Int32",
      "Int64",          "UInt8",
      "UInt16",         "UInt32",
      "UInt64",         "Float4_E2M1Fn_X2",
      "Float8_E4M3Fn",  "Float8_E4M3FnUz",
      "Float8_E5M2",    "Float8_E5M2FnUz",
      "Float8_E8M0Fnu", "Float16",
      "BFloat16",       "Float32",
      "Float64",        "Complex64",
      "Complex128"};
  for (int i = 0; i < kNumDTypes; ++i) dtypes.value(kNames[i], static_cast<DType>(i));

  nb::class_<PyBuffer>(m, "Buffer",
                       "An array as the core sees it. It keeps the memory alive.")
      .def(nb::init<std::uintptr_t, DType, const std::vector<std::int64_t>&,
                    const std::optional<std::vector<std::int64_t>>&, nb::object>(),
           nb::arg("address"), nb::arg("dtype"), nb::arg("shape"),
           nb::arg("strides").none(), nb::arg("owner").none(),
           "Describe the memory at `address`, which `owner` keeps alive. Strides are "
           "in bytes; None means C order without gaps.")
      .def_static(
          "from_numpy",
          [](nb::object array, bool writable) -> std::optional<PyBuffer> {
            if (!is_within_base(array))
              throw Error(ErrorKind::Value,
                          "numpy array of shape " +
                              nb::cast<std::string>(nb::repr(array.attr("shape"))) +
                              " and strides " +
                              nb::cast<std::string>(nb::repr(array.attr("strides"))) +
                              " reaches beyond the memory of the array that it is a "
                              "view of; pass what lies within it");
            auto buffer = read_numpy(array, writable);
            if (!buffer) return std::nullopt;
            return PyBuffer(std::move(*buffer), std::move(array));
          },
          nb::arg("array"), nb::arg("writable"),
          "Return the memory of a numpy.ndarray of any layout. Return None if the "
          "array is read-only although `writable` is asked for, or if the core has no "
          "such dtype.\n\n"
          "Raises:\n"
          "    ValueError: the array reaches beyond the memory that it is a view of.")
      .def_static(
          "is_exported_by",
          [](nb::type_object kind) {
            const auto* const type = reinterpret_cast<PyTypeObject*>(kind.ptr());
            return type->tp_as_buffer != nullptr &&
                   type->tp_as_buffer->bf_getbuffer != nullptr;
          },
          nb::arg("kind"),
          "Return whether objects of this type have the buffer protocol.")
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
