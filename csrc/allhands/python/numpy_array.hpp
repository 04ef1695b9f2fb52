#pragma once

#include <nanobind/nanobind.h>

#include <optional>

#include "allhands/base/buffer.hpp"
#include "allhands/python/held_arrays.hpp"

namespace allhands::python {

PyTypeObject* numpy_array_type();

// Whether an array lies within the one whose memory it views, as far as that can be
// known.
// It may not if as_strided made it, or if resize() made its base smaller.
bool is_within_base(nanobind::handle array);

// The memory of a numpy.ndarray, read from its struct. That takes a nanosecond, a
// hundredth of the time of the buffer protocol, which writes the dtype as text. Returns
// nothing if it is no such array, is read-only but must be written, is not within its
// base, or has a dtype that is unknown here or not in native byte order.
std::optional<Buffer> read_numpy(nanobind::handle array, bool writable);

// Returns nothing if it is no numpy.ndarray, or is not within its base.
std::optional<ArrayMemory> memory_of_numpy(nanobind::handle array);

}  // namespace allhands::python
