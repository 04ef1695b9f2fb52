#pragma once

#include <nanobind/nanobind.h>

#include <optional>

#include "allhands/base/buffer.hpp"

namespace allhands::python {

PyTypeObject* numpy_array_type();

// Whether an array lies within the one whose memory it views, as far as that can be
// known. One may not that as_strided made, or whose base was made smaller by resize().
bool is_within_base(nanobind::handle array);

// The memory of a numpy.ndarray, read from its struct: that takes a nanosecond, a
// hundred times less than the buffer protocol, which writes the dtype as text. Nothing:
// it is no such array, read-only where it is to be written, not within its base, or of
// a dtype that is none of ours or not in native byte order.
std::optional<Buffer> read_numpy(nanobind::handle array, bool writable);

}  // namespace allhands::python
