// Arrays cut into one piece per rank.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "allhands/base/buffer.hpp"
#include "allhands/python/array.hpp"

namespace allhands::python {

// Pieces as large as `part`. `operation` and `name` (of the parameter) are for
// messages.
// Throws ValueError.
std::vector<Buffer> shares(const char* operation, const char* name, const Buffer& whole,
                           const Buffer& part, int num_ranks);

// Pieces with as many rows as `sizes` say, a sequence of integers; or with the same
// number each if that is None or empty. Throws TypeError and RuntimeError.
std::vector<Buffer> rows(const char* operation, const char* name,
                         nanobind::handle given, const Buffer& array,
                         nanobind::handle sizes, int num_ranks);

}  // namespace allhands::python
