// Checks of a collective's arguments, before anything moves. Every call runs them, so
// they build text only for an error.
#pragma once

#include <cstddef>
#include <vector>

#include "allhands/arena/operation.hpp"
#include "allhands/base/buffer.hpp"

namespace allhands {

// Checks the dtype, which the reduce operation must support, and the factor.
void check_reduction(const Operation& operation, DType dtype);
// The root must be a rank.
void check_root(const Operation& operation, int size);

void check_dtype(const Buffer& buffer, DType expected);
// `which` and, unless it is -1, `index` say which array of the operation it is.
void check_count(const Operation& operation, const char* which, const Buffer& buffer,
                 std::size_t expected, int index = -1);

// Checks the "input" or "output" list (`which`): one array per rank, all of one dtype.
void check_list(const Operation& operation, const char* which,
                const std::vector<Buffer>& list, int size, DType dtype);
// Checks likewise a list that only the root has. Each array has as many elements as
// `one`.
void check_list_of_root(const Operation& operation, const char* which,
                        const std::vector<Buffer>& list, int rank, int size,
                        const Buffer& one);

// One call must not write the same memory twice. Of strided arrays, only those that
// begin at the same element are found, since others may interleave.
void check_apart(const char* what, const std::vector<Buffer>& list);

}  // namespace allhands
