#include "allhands/python/ways.hpp"

#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "allhands/base/error.hpp"
#include "allhands/comm/select.hpp"
#include "allhands/python/tuning.hpp"
#include "allhands/transport/shm/peer_memory.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace allhands::python {
namespace {

using WayRow = std::tuple<std::string, bool, std::string>;

std::vector<WayRow> ways(const std::string& op, std::size_t bytes, int ranks,
                         bool can_read_peers, bool has_shared_arrays,
                         const TuningChanges& changes, const std::string& figures) {
  if (ranks < 1)
    throw Error(ErrorKind::Value,
                "ways: ranks must be at least 1, got " + std::to_string(ranks));
  const Tuning tuning = tuning_here(ranks, changes, figures);
  std::vector<WayRow> rows;
  std::string names;
  for (const WayChoice& choice : choices()) {
    if (choice.way == Way::Slots)
      names += (names.empty() ? "" : ", ") + std::string(name_of(choice.op));
    if (op != name_of(choice.op)) continue;
    const Case c = {choice.op, bytes, ranks, can_read_peers, has_shared_arrays};
    rows.emplace_back(name_of(choice.way), choice.is_worth(c, tuning), choice.reason);
  }
  if (rows.empty())
    throw Error(ErrorKind::Value, "ways: there is no '" + op + "'; there are " + names);
  return rows;
}

// Has the same address in every image of this program, including a forked child.
const std::uint64_t kProbe = 0x616c6c68616e6473;

}  // namespace

void bind_ways(nb::module_& m) {
  m.def("ways", ways, "op"_a, "bytes"_a, "ranks"_a, nb::kw_only(), "can_read_peers"_a,
        "has_shared_arrays"_a, "tuning"_a, "figures"_a = "",
        "Return the ways of an operation on arrays of `bytes`, best first: the name, "
        "whether the way is worth it here, and why. The operation takes the first way "
        "that is worth it and that the arrays of all ranks allow. `tuning` and "
        "`figures` are those of tuning_here().");
  m.def(
      "can_read_child",
      [](int pid) {
        std::uint64_t seen = 0;
        const auto address = reinterpret_cast<std::uint64_t>(&kProbe);
        return read_memory_of(pid, address, &seen, sizeof(seen)) == PeerRead::Done &&
               seen == kProbe;
      },
      "pid"_a,
      "Return whether the host lets this process read the memory of its forked child.");
}

}  // namespace allhands::python
