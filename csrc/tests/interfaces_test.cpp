// What this machine says of its own network.
#include "allhands/net/interfaces.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "check.hpp"

using allhands::addresses_towards;
using allhands::Deadline;
using allhands::interface_addresses;
using allhands::InterfaceAddress;

namespace {

std::vector<std::string> towards(const std::string& host) {
  return addresses_towards(host, {Deadline::after(std::chrono::seconds(60))});
}

void the_loopback_is_one_of_them() {
  const std::vector<InterfaceAddress> all = interface_addresses();
  const auto loopback = std::find_if(all.begin(), all.end(), [](const auto& each) {
    return each.address == "127.0.0.1";
  });
  CHECK(loopback != all.end());
  CHECK(loopback->interface == "lo");
  CHECK(loopback->prefix_length == 8);
  CHECK(loopback->is_loopback);
  CHECK(loopback->is_up);
}

void each_address_leads_to_itself() {
  for (const InterfaceAddress& each : interface_addresses()) {
    const bool is_ipv6 = each.address.find(':') != std::string::npos;
    CHECK(each.prefix_length > 0 && each.prefix_length <= (is_ipv6 ? 128 : 32));
    // An IPv6 address that is new may not be in use yet.
    if (each.is_up && !is_ipv6)
      CHECK(towards(each.address) == std::vector{each.address});
  }
}

void a_name_leads_where_its_address_does() {
  for (const std::string& own : towards("localhost"))
    CHECK(own == "127.0.0.1" || own == "::1");
  CHECK(!towards("localhost").empty());
  CHECK(towards("a..b").empty());
}

}  // namespace

int main() {
  the_loopback_is_one_of_them();
  each_address_leads_to_itself();
  a_name_leads_where_its_address_does();
}
