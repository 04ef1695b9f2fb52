// Engines of ranks as threads, and messages between them.
#pragma once

#include <span>
#include <vector>

#include "allhands/engine/progress_engine.hpp"
#include "transports.hpp"

namespace allhands::testing {

// Of all engines; the tests run with several.
inline Tuning tuning = Tuning::for_ranks(2);

// Of all engines too.
inline const TransportKind* kind = nullptr;

template <class Body>
void run_engines(int size, Body body) {
  const MakeTransport make = kind->make_group(size, tuning);
  run_ranks(size, [&](int rank) {
    ProgressEngine engine(make(rank), membership(rank, size), tuning);
    body(engine, rank);
    engine.flush(soon());
  });
}

inline bool are_all(float value, std::span<const float> data) {
  for (const float x : data)
    if (x != value) return false;
  return true;
}

inline void wait(ProgressEngine& engine, const TransferPtr& transfer,
                 const Limits& limits) {
  engine.wait(transfer, limits, ProgressEngine::AtEnd::GiveUp);
}

inline void send(ProgressEngine& engine, std::vector<float>& data, int to,
                 int tag = 0) {
  engine.send(buffer_of(data), to, tag, soon());
}

inline int recv(ProgressEngine& engine, std::vector<float>& data, int from,
                int tag = 0) {
  return engine.recv(buffer_of(data), from, tag, soon());
}

// A message of any size, looked at but not taken.
inline TransferPtr post_probe(ProgressEngine& engine, int from, Tag tag) {
  return engine.post_recv({}, from, tag, soon().deadline, nullptr, Fit::Look);
}

// Tests on every transport, and by every way of large messages.
template <class Test>
void by_every_way(Test test) {
  const std::vector<TransportKind> kinds = all_transports();
  for (const TransportKind& each : kinds) {
    kind = &each;
    test();
  }
  kind = &kinds[0];
  // By single copies, in more slices than usual, and through the rings.
  tuning.slice_bytes = 4096;
  test();
  tuning.handover_bytes = std::uint64_t{1} << 40;
  test();
  tuning = Tuning::for_ranks(2);
  kind = nullptr;
}

}  // namespace allhands::testing
