// The error of ranks that called different things as the same operation.
#pragma once

#include <cstdint>
#include <vector>

#include "allhands/arena/descriptor.hpp"
#include "allhands/base/error.hpp"
#include "allhands/host/membership.hpp"

namespace allhands {

// `called[i]` is what `ranks[i]` of the group called. The ranks are in ascending order
// and include this one. The error text names all of them; its ranks are those that
// differ from this one.
Error mismatch_error(const Membership& group, std::uint64_t sequence,
                     const std::vector<int>& ranks,
                     const std::vector<Descriptor>& called);

}  // namespace allhands
