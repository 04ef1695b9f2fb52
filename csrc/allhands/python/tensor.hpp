// Tensors of other libraries, read directly through C interfaces: DLPack's C exchange
// API for the layout, and the library's own functions for the size of the memory.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>

#include "allhands/base/buffer.hpp"
#include "allhands/python/held_arrays.hpp"

namespace allhands::python {

// Returns nothing if the type is not registered, or it is not the usual tensor
// (contiguous, on the CPU, of a plain dtype, within its storage).
std::optional<Buffer> read_tensor(nanobind::handle tensor);

// Returns nothing if the type is not registered, or the tensor is not on the CPU.
std::optional<ArrayMemory> memory_of_tensor(nanobind::handle tensor);

void bind_tensor(nanobind::module_& m);

}  // namespace allhands::python
