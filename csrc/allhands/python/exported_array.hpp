// Memory of the core as a NumPy array.
//
// It uses an object with the buffer protocol, written for CPython directly: nanobind's
// array ends the process if there is no memory for its object.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace allhands::python {

// Returns a one-dimensional, writable array of uint8 or int64. The array keeps `owner`
// alive, and so the memory at `data`. Throws what Python raised, such as MemoryError.
nanobind::object export_bytes(void* data, std::size_t num_bytes,
                              std::shared_ptr<void> owner);
nanobind::object export_int64s(void* data, std::size_t count,
                               std::shared_ptr<void> owner);

// A Python object as an owner. Release it with the GIL.
inline std::shared_ptr<void> as_owner(nanobind::handle object) {
  return std::make_shared<nanobind::object>(nanobind::borrow(object));
}

void bind_exported_array(nanobind::module_& m);

}  // namespace allhands::python
