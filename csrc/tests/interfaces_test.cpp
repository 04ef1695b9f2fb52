// What this machine says of its own network.
#include "allhands/net/interfaces.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "allhands/net/address.hpp"
#include "allhands/net/listener.hpp"
#include "check.hpp"

using allhands::Address;
using allhands::addresses_towards;
using allhands::Deadline;
using allhands::interface_addresses;
using allhands::InterfaceAddress;
using allhands::is_own_name_for_loopback;
using allhands::resolve;

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

std::vector<Address> meant(const std::string& literal) {
  std::string problem;
  return resolve(literal, 1, {Deadline::after(std::chrono::seconds(60))}, problem);
}

void a_machine_may_have_its_own_name_for_the_loopback() {
  const std::vector<Address> loopback = meant("127.0.1.1");
  CHECK(is_own_name_for_loopback("node-3", loopback));
  CHECK(is_own_name_for_loopback("node-3", meant("::1")));
  CHECK(!is_own_name_for_loopback("localhost", loopback));
  CHECK(!is_own_name_for_loopback("localhost.localdomain", loopback));
  CHECK(!is_own_name_for_loopback("ip6-localhost", meant("::1")));
  CHECK(!is_own_name_for_loopback("127.0.1.1", loopback));
  CHECK(!is_own_name_for_loopback("::1", meant("::1")));
  std::vector<Address> both = loopback;
  both.push_back(meant("10.0.0.3").front());
  CHECK(!is_own_name_for_loopback("node-3", both));
  CHECK(!is_own_name_for_loopback("node-3", {}));
}

void the_loopback_has_many_addresses() {
  for (const char* text : {"127.0.0.1", "127.255.0.1", "::1", "::ffff:127.0.0.1"})
    CHECK(meant(text).front().is_loopback());
  for (const char* text : {"126.0.0.1", "128.0.0.1", "::", "::2", "::ffff:10.0.0.3"})
    CHECK(!meant(text).front().is_loopback());
}

}  // namespace

int main() {
  a_machine_may_have_its_own_name_for_the_loopback();
  the_loopback_has_many_addresses();
  the_loopback_is_one_of_them();
  each_address_leads_to_itself();
  a_name_leads_where_its_address_does();
}
