#pragma once

#include <nanobind/nanobind.h>

#include <optional>

#include "allhands/base/buffer.hpp"

namespace allhands::python {

PyTypeObject* numpy_array_type();

// The memory of a numpy.ndarray, read from its struct: that takes a nanosecond, a
// hundred times less than the buffer protocol, which writes the dtype as text. Nothing:
// it is no such array, read-only where it is to be written, or of a dtype that is none
// of ours or not in native byte order.
std::optional<Buffer> read_numpy(nanobind::handle array, bool writable);

}  // namespace allhands::python
