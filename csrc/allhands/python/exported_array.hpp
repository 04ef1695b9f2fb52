// Memory of the core as a NumPy array.
//
// By an object with the buffer protocol, written for CPython itself: nanobind's array
// ends the process where there is no memory for its object.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace allhands::python {

// A one-dimensional, writable array of uint8 or int64, which keeps `owner`, and so the
// memory at `data`. Throws what Python raised, MemoryError for instance.
nanobind::object export_bytes(void* data, std::size_t num_bytes,
                              std::shared_ptr<void> owner);
nanobind::object export_int64s(void* data, std::size_t count,
                               std::shared_ptr<void> owner);

// A Python object as an owner. To be let go with the GIL.
inline std::shared_ptr<void> as_owner(nanobind::handle object) {
  return std::make_shared<nanobind::object>(nanobind::borrow(object));
}

void bind_exported_array(nanobind::module_& m);

}  // namespace allhands::python
