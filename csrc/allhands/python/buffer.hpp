// The memory of an array that cannot be read directly; array.hpp reads the usual ones.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "allhands/base/buffer.hpp"

namespace allhands::python {

// A Buffer, and the object that keeps its memory alive.
class PyBuffer {
 public:
  // `strides` in bytes; none: contiguous in C order.
  PyBuffer(std::uintptr_t address, DType dtype, const std::vector<std::int64_t>& shape,
           const std::optional<std::vector<std::int64_t>>& strides,
           nanobind::object owner);
  // Memory of the array `owner`.
  PyBuffer(Buffer buffer, nanobind::object owner)
      : buffer_(std::move(buffer)), owner_(std::move(owner)) {}

  const Buffer& buffer() const { return buffer_; }
  nanobind::handle owner() const { return owner_; }
  // That of the first dimension. Throws TypeError without one.
  std::size_t length() const;

 private:
  Buffer buffer_;
  nanobind::object owner_;
  std::optional<std::vector<std::int64_t>> shape_;  // none: that of the owner
};

void bind_buffer(nanobind::module_& m);

}  // namespace allhands::python
