// Arrays cut in one piece per rank.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "allhands/base/buffer.hpp"
#include "allhands/python/array.hpp"

namespace allhands::python {

using SplitSizes = std::optional<std::vector<std::int64_t>>;

// Pieces as large as `part`. `what` is cut, for messages. Throws ValueError.
std::vector<Buffer> shares(const char* what, const Buffer& whole, const Buffer& part,
                           int num_ranks);

// Pieces of as many rows as `sizes` say, or of equally many where these are none or
// empty. `name`: of the parameter, for messages. Throws RuntimeError.
std::vector<Buffer> rows(const char* name, nanobind::handle given, const Buffer& array,
                         const SplitSizes& sizes, int num_ranks);

}  // namespace allhands::python
