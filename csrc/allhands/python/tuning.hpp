// The tuning for Python: numbers by name.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <map>
#include <string>

#include "allhands/host/membership.hpp"
#include "allhands/host/tuning.hpp"

namespace allhands::python {

// That of a group with these members, with `changes`.
Tuning tuning_of(const Membership& membership,
                 const std::map<std::string, std::uint64_t>& changes);

void bind_tuning(nanobind::module_& m);

}  // namespace allhands::python
