// The network interfaces of this machine, for choosing where to listen.
#include "allhands/python/interfaces.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tuple>
#include <vector>

#include "allhands/net/interfaces.hpp"
#include "allhands/python/errors.hpp"
#include "allhands/python/gil.hpp"
#include "allhands/python/time_limits.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace allhands::python {
namespace {

using AddressRow = std::tuple<std::string, std::string, int, bool, bool>;

std::vector<AddressRow> address_rows() {
  std::vector<AddressRow> found;
  for (const InterfaceAddress& each : interface_addresses())
    found.emplace_back(each.interface, each.address, each.prefix_length, each.is_up,
                       each.is_loopback);
  return found;
}

}  // namespace

void bind_interfaces(nb::module_& m) {
  m.def("interface_addresses", &address_rows, nb::call_guard<GilReleased>(),
        "Return (interface, address, prefix length, is up, is loopback) for each "
        "address of this machine.");
  m.def(
      "addresses_towards",
      [](const std::string& host, double timeout) {
        const GilReleased no_gil;
        return addresses_towards(
            host, {Deadline::after(duration_of(timeout)), &python_interrupt});
      },
      "host"_a, "timeout"_a,
      "Return the source addresses of packets to `host`, one for each address of "
      "`host`. The list is empty if the name is not resolved within the limit.");
}

}  // namespace allhands::python
