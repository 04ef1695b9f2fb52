// Every transport there is, for what is to run on each of them.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "allhands/base/shared_memory.hpp"
#include "allhands/host/tuning.hpp"
#include "allhands/transport/shm/shm_transport.hpp"
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

inline const std::vector<TransportKind> kTransports = {
    {"shm", &shm_group},
    {"loopback", &loopback_group},
};

}  // namespace allhands::testing
