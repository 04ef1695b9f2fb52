// The tuning for Python: numbers by name.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "allhands/host/membership.hpp"
#include "allhands/host/tuning.hpp"

namespace allhands::python {

// By name; see Tuning.
using TuningChanges = std::map<std::string, std::uint64_t>;

// Returns a function that makes the tuning for a group's ranks on this host, with
// `changes`, which are checked now. The host's figures are those in `folder`; the first
// group of a process may measure them.
std::function<Tuning()> tuning_of(const Membership& membership,
                                  const TuningChanges& changes,
                                  const std::string& folder);

// The tuning for `size` ranks on this process's CPUs.
Tuning tuning_here(int size, const TuningChanges& changes, const std::string& folder);

void bind_tuning(nanobind::module_& m);

}  // namespace allhands::python
