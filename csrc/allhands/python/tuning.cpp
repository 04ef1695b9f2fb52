#include "allhands/python/tuning.hpp"

#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>

namespace nb = nanobind;
using namespace nb::literals;

namespace allhands::python {

Tuning tuning_of(const Membership& membership,
                 const std::map<std::string, std::uint64_t>& changes) {
  Tuning tuning = Tuning::for_ranks(membership.size(), num_cpus(membership.peers));
  for (const auto& [name, value] : changes) tuning.set(name, value);
  return tuning;
}

void bind_tuning(nb::module_& m) {
  m.def(
      "default_tuning",
      [](int size) {
        const Tuning tuning = Tuning::for_ranks(size);
        std::map<std::string, std::uint64_t> values;
        for (const Tuning::Entry& entry : Tuning::entries())
          values[entry.name] = tuning.*entry.value;
        return values;
      },
      "size"_a,
      "The tuning of a group of `size` ranks that share this process's CPUs, by name.");
}

}  // namespace allhands::python
