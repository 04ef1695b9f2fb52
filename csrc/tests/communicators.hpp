// Whole groups for tests: a Communicator for each rank, which are threads.
#pragma once

#include <cstring>

#include "allhands/comm/communicator.hpp"
#include "ranks.hpp"

namespace allhands::testing {

inline Token fresh_token() {
  static int counter = 0;  // runs in the main thread only
  Token token = {};
  const ProcessIdentity self = this_process();
  ++counter;
  std::memcpy(token.data(), &self.pid, sizeof(self.pid));
  std::memcpy(token.data() + 4, &counter, sizeof(counter));
  token[31] = std::byte{1};
  return token;
}

// Runs body(comm) as every rank of a fresh group.
template <class Body>
void run_communicators(int size, Body body) {
  const Token token = fresh_token();
  run_ranks(size, [&](int rank) {
    Communicator comm(membership(rank, size), token,
                      [size] { return Tuning::for_ranks(size); });
    body(comm);
    comm.close(soon());
  });
}

}  // namespace allhands::testing
