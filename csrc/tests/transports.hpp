// Every transport there is, for what is to run on each of them.
#pragma once

#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "allhands/base/shared_memory.hpp"
#include "allhands/host/tuning.hpp"
#include "allhands/transport/routed_transport.hpp"
#include "allhands/transport/shm/shm_transport.hpp"
#include "allhands/transport/tcp/tcp_port.hpp"
#include "allhands/transport/ucx/library.hpp"
#include "loopback.hpp"
#include "ranks.hpp"

namespace allhands::testing {

// The transport of each rank of one group.
using MakeTransport = std::function<std::unique_ptr<Transport>(int rank)>;

struct TransportKind {
  const char* name;
  // For a new group of `size`.
  MakeTransport (*make_group)(int size, const Tuning& tuning);
};

inline MakeTransport shm_group(int size, const Tuning& tuning) {
  const std::shared_ptr<SharedMemory> memory =
      SharedMemory::create(ShmTransport::memory_bytes(size));
  return [=](int rank) {
    return std::make_unique<ShmTransport>(memory, memory->data(),
                                          membership(rank, size), tuning);
  };
}

inline MakeTransport loopback_group(int size, const Tuning&) {
  const auto group = std::make_shared<Loopback>(size);
  return [=](int rank) { return group->transport(rank); };
}

// Ranks 0, 2, ... on one host and 1, 3, ... on another one.
class TwoHosts {
 public:
  explicit TwoHosts(int size) : size_(size), between_(size) {
    for (int rank = 0; rank < size; ++rank) ranks_[rank % 2].push_back(rank);
    for (const std::vector<int>& ranks : ranks_)
      within_.push_back(std::make_unique<Loopback>(static_cast<int>(ranks.size())));
    for (int rank = 0; rank < size; ++rank)
      between_.rank(rank).set_wake(
          [&local = within_[rank % 2]->rank(rank / 2)] { local.tell(); });
  }

  std::unique_ptr<Transport> transport(int rank) {
    return std::make_unique<RoutedTransport>(within_[rank % 2]->transport(rank / 2),
                                             ranks_[rank % 2], size_,
                                             between_.transport(rank));
  }

 private:
  const int size_;
  std::array<std::vector<int>, 2> ranks_;
  Loopback between_;
  std::vector<std::unique_ptr<Loopback>> within_;
};

inline MakeTransport routed_group(int size, const Tuning&) {
  const auto hosts = std::make_shared<TwoHosts>(size);
  return [=](int rank) { return hosts->transport(rank); };
}

using Ports = std::vector<std::unique_ptr<TcpPort>>;

// Of a group whose ranks, all of this process, listen at these ports.
inline Membership members_at(const Ports& ports, int rank) {
  std::vector<ProcessIdentity> processes;
  for (const auto& port : ports) {
    processes.push_back(this_process());
    processes.back().endpoints = port->endpoints()[0];
  }
  return {"test", rank, std::move(processes)};
}

// Ports on loopback, as if each rank were on a host of its own.
class TcpRanks {
 public:
  explicit TcpRanks(int size, const TcpPort::Options& options = {}) {
    for (int rank = 0; rank < size; ++rank)
      ports_.push_back(std::make_unique<TcpPort>(std::vector<std::string>{"127.0.0.1"},
                                                 std::uint16_t{0}, std::uint16_t{0},
                                                 options));
    for (const auto& port : ports_) port->start(kSecret);
  }

  TcpPort& port(int rank) { return *ports_[static_cast<std::size_t>(rank)]; }
  // Of a group of all ranks.
  Membership members(int rank) const { return members_at(ports_, rank); }
  std::unique_ptr<Transport> join(int rank, const TcpPort::GroupToken& token = {}) {
    return port(rank).join(members(rank), token, Tuning::for_ranks(2));
  }

  static constexpr TcpPort::Secret kSecret = {std::byte{5}, std::byte{7}};

 private:
  Ports ports_;
};

inline MakeTransport tcp_group(int size, const Tuning&) {
  const auto ranks = std::make_shared<TcpRanks>(size);
  return [=](int rank) { return ranks->join(rank); };
}

inline MakeTransport tls_group(int size, const Tuning&) {
  const auto ranks =
      std::make_shared<TcpRanks>(size, TcpPort::Options{.is_encrypted = true});
  return [=](int rank) { return ranks->join(rank); };
}

inline MakeTransport strands_group(int size, const Tuning&) {
  const auto ranks =
      std::make_shared<TcpRanks>(size, TcpPort::Options{.num_sockets = 3});
  return [=](int rank) { return ranks->join(rank); };
}

inline MakeTransport ucx_group(int size, const Tuning&) {
  const auto ranks = std::make_shared<TcpRanks>(
      size, TcpPort::Options{.ucx = TcpPort::UcxUse::Needed});
  return [=](int rank) { return ranks->join(rank); };
}

// What a test returns that was not run; CMakeLists.txt knows it.
inline constexpr int kSkipped = 77;

// Whether UCX is here; says so if it is not. From then on UCX uses TCP.
inline bool has_ucx() {
  ::setenv("UCX_TLS", "tcp", 0);
  // UCX patches functions of the C library that the thread sanitizer replaces.
  if (kIsSanitized) ::setenv("UCX_MEM_EVENTS", "n", 0);
  try {
    Ucx::loaded();
    return true;
  } catch (const Error& error) {
    std::fprintf(stderr, "not run on UCX: %s\n", error.what());
    return false;
  }
}

inline std::vector<TransportKind> all_transports() {
  std::vector<TransportKind> all = {
      {"shm", &shm_group}, {"loopback", &loopback_group}, {"routed", &routed_group},
      {"tcp", &tcp_group}, {"tls", &tls_group},           {"strands", &strands_group},
  };
  if (has_ucx()) all.push_back({"ucx", &ucx_group});
  return all;
}

}  // namespace allhands::testing
