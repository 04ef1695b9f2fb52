#include "allhands/transport/tcp/dial.hpp"

#include <algorithm>
#include <cerrno>
#include <sstream>

#include "allhands/base/error.hpp"
#include "allhands/net/socket.hpp"

namespace allhands {
namespace {

// The pause after all addresses were tried.
constexpr std::chrono::milliseconds kPause{50};

std::string endpoints_of(const ProcessName& name) {
  return name.substr(0, name.find(' '));
}

// Parses "10.0.0.3:4471,[fe80::1%eth0]:4471", and skips parts that are no address.
std::vector<Address> addresses_of(const std::string& endpoints) {
  std::vector<Address> all;
  std::istringstream list(endpoints);
  for (std::string endpoint; std::getline(list, endpoint, ',');) {
    const std::size_t colon = endpoint.rfind(':');
    if (colon == std::string::npos) continue;
    std::string host = endpoint.substr(0, colon);
    if (host.size() >= 2 && host.front() == '[' && host.back() == ']')
      host = host.substr(1, host.size() - 2);
    const int port = std::atoi(endpoint.c_str() + colon + 1);
    if (port <= 0 || port > 65535) continue;
    if (const auto address = literal_address(host, static_cast<std::uint16_t>(port)))
      all.push_back(*address);
  }
  return all;
}

}  // namespace

ProcessName name_of(const std::string& endpoints, int pid, std::uint64_t start) {
  return endpoints + " " + std::to_string(pid) + " " + std::to_string(start);
}

Dial::Dial(const ProcessName& peer, Clock::duration limit, unsigned rail)
    : addresses_(addresses_of(endpoints_of(peer))),
      endpoints_(endpoints_of(peer)),
      limit_(limit),
      next_(Clock::now()),
      end_(next_ + limit) {
  if (addresses_.empty()) return;
  const auto first = static_cast<std::ptrdiff_t>(rail % addresses_.size());
  std::rotate(addresses_.begin(), addresses_.begin() + first, addresses_.end());
}

// If the attempt begins now: each address gets its share of the time.
Dial::Clock::time_point Dial::end_of_attempt() const {
  const auto share = (end_ - Clock::now()) / static_cast<int>(addresses_.size());
  return Clock::now() + std::max<Clock::duration>(share, kPause);
}

void Dial::renew() {
  end_ = Clock::now() + limit_;
  if (!addresses_.empty()) attempt_end_ = end_of_attempt();
}

Fd Dial::begin() {
  if (addresses_.empty()) {
    fail("it listens at no address that can be used", true);
    return Fd();
  }
  attempt_end_ = end_of_attempt();
  int code = 0;
  Fd socket = start_connecting(addresses_[at_], code);
  if (!socket.is_open()) fail(errno_text(code), code == ECONNREFUSED);
  // A lack of resources here does not count: the wait for the peer has its own limit.
  if (code == EMFILE || code == ENFILE || code == ENOBUFS || code == ENOMEM) {
    next_ = Clock::now() + kPause;
    end_ = next_ + limit_;
  }
  return socket;
}

void Dial::fail(const std::string& problem, bool is_gone) {
  problem_ = problem;
  num_gone_ = is_gone ? num_gone_ + 1 : 0;
  ++at_;
  next_ = Clock::now();
  if (at_ < addresses_.size()) return;
  at_ = 0;
  next_ += kPause;
}

void Dial::give_way() { next_ = Clock::now() + kPause; }

bool Dial::is_over() const {
  return (num_gone_ != 0 && num_gone_ >= addresses_.size()) || next_ > end_;
}

std::string Dial::problem() const {
  return "it cannot be reached at " + endpoints_ + ": " + problem_;
}

}  // namespace allhands
