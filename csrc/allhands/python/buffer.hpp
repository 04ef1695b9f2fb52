#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "allhands/base/buffer.hpp"

namespace allhands::python {

// A Buffer and what keeps its memory alive. Not copied: it may hold a Py_buffer.
class PyBuffer {
 public:
  // `strides` in bytes; none: contiguous in C order.
  PyBuffer(std::uintptr_t address, DType dtype, const std::vector<std::int64_t>& shape,
           const std::optional<std::vector<std::int64_t>>& strides,
           nanobind::object owner);
  // Takes the array through the buffer protocol (PEP 3118).
  PyBuffer(nanobind::handle array, bool writable);
  PyBuffer(const PyBuffer&) = delete;
  PyBuffer& operator=(const PyBuffer&) = delete;
  ~PyBuffer();

  const Buffer& buffer() const { return buffer_; }

 private:
  Buffer buffer_;
  nanobind::object owner_;
  Py_buffer view_ = {};  // held while view_.obj is set
};

void bind_buffer(nanobind::module_& m);

}  // namespace allhands::python
