#include "allhands/python/tuning.hpp"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <optional>
#include <tuple>
#include <vector>

#include "allhands/calibration/figures_file.hpp"
#include "allhands/calibration/fit.hpp"
#include "allhands/host/caches.hpp"
#include "allhands/python/communicator.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace allhands::python {
namespace {

// On a host too busy for a rehearsal, only one group's first call tries one.
std::atomic<bool> has_rehearsed = false;

Tuning changed(Tuning tuning, const TuningChanges& changes) {
  for (const auto& [name, value] : changes) tuning.set(name, value);
  return tuning;
}

TuningChanges by_name(const Tuning& tuning) {
  TuningChanges values;
  for (const Tuning::Entry& entry : Tuning::entries())
    values[entry.name] = tuning.*entry.value;
  return values;
}

cpu_set_t own_cpus() { return cpus_of({{.host = {}, .pid = 0}}); }

using FigureRow = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;

std::optional<std::vector<FigureRow>> figures(const std::string& folder,
                                              bool rehearse) {
  const auto found = learn_host(own_cpus(), folder, rehearse).figures;
  if (!found) return std::nullopt;
  std::vector<FigureRow> rows;
  for (std::size_t i = 0; i < Figures::kSizes.size(); ++i)
    rows.emplace_back(Figures::kSizes[i], found->slots[i], found->read[i]);
  return rows;
}

}  // namespace

std::function<Tuning()> tuning_of(const Membership& membership,
                                  const TuningChanges& changes,
                                  const std::string& folder) {
  const Membership local = on_this_host(membership);
  changed(Tuning::for_ranks(local.size()), changes);
  return [members = local.peers, changes, folder] {
    const std::vector<ProcessIdentity>& peers = members.all();
    const cpu_set_t cpus = cpus_of(peers);
    // Only ranks with a CPU each benefit from a rehearsal, and do not disturb it.
    const bool is_crowded = static_cast<int>(peers.size()) > CPU_COUNT(&cpus);
    const bool may_rehearse = !folder.empty() && !is_crowded && peers.size() > 1 &&
                              !has_rehearsed.exchange(true);
    return changed(
        fit(static_cast<int>(peers.size()), learn_host(cpus, folder, may_rehearse)),
        changes);
  };
}

Tuning tuning_here(int size, const TuningChanges& changes, const std::string& folder) {
  return changed(fit(size, learn_host(own_cpus(), folder, false)), changes);
}

void bind_tuning(nb::module_& m) {
  m.def(
      "tuning_here",
      [](int size, const TuningChanges& changes, const std::string& folder) {
        return by_name(tuning_here(size, changes, folder));
      },
      "size"_a, nb::kw_only(), "changes"_a = TuningChanges(), "figures"_a = "",
      "Return the tuning, with `changes`, of a group of `size` ranks that share the "
      "CPUs of this process, by name. `figures` is the folder that may hold the "
      "figures of this host.");
  m.def("figures", figures, "folder"_a, nb::kw_only(), "rehearse"_a,
        "Return what an exchange of two ranks takes on this host: for each size in "
        "bytes the nanoseconds by the slots and by reading. They are read from "
        "`folder`. If `folder` has none and `rehearse` is true, they are measured "
        "within 3 ms and kept. The result is None if there are none.");
  m.def("cpu_model", cpu_model, "Return the CPU's name, as the kernel spells it.");
  m.def(
      "num_cpus",
      [](const std::vector<PyCommunicator::Peer>& peers) {
        return num_cpus(processes_of(peers));
      },
      "peers"_a, "CPUs that at least one of these processes of this host may run on.");
}

}  // namespace allhands::python
