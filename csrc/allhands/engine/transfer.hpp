// One send or one receive, from its posting to its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "allhands/base/buffer.hpp"
#include "allhands/base/deadline.hpp"
#include "allhands/base/flight_ring.hpp"
#include "allhands/engine/tag.hpp"
#include "allhands/engine/work.hpp"
#include "allhands/transport/landings.hpp"

namespace allhands {

inline constexpr int kAnySource = -1;

// What a receive does with the message that it matches.
enum class Fit : std::uint8_t {
  Exact,  // takes it, if it has as many elements as the buffer
  UpTo,   // takes it, if it has no more; the buffer is then cut to its length
  Look,   // leaves it for another receive: a probe, whose buffer has no memory
};

// A posted send or receive. The ProgressEngine's lock guards it, except `work`, which
// any thread may use.
struct Transfer {
  bool is_send;
  Buffer buffer;
  int peer;  // destination or source; may be kAnySource
  Tag tag;
  Deadline deadline;
  FlightSlot* record = nullptr;  // in the flight recorder; may be null
  std::uint32_t id = 0;
  int source = kAnySource;    // of the message that a receive got
  std::int64_t came_tag = 0;  // of the same message
  std::size_t came_bytes = 0;
  std::size_t moved = 0;  // elements
  Fit fit = Fit::Exact;
  LandingKey landing = kNoLanding;  // of its data, if that is sent at once
  Work work{};

  // The one other rank of this transfer, as far as it is known.
  int other() const { return source != kAnySource ? source : peer; }
};

using TransferPtr = std::shared_ptr<Transfer>;

// Transfers that a step of progress has ended.
struct Ended {
  bool is_any = false;
  std::vector<TransferPtr> to_announce;

  // `error` is null for success.
  void add(TransferPtr transfer, std::exception_ptr error = nullptr) {
    is_any = true;
    if (transfer->record != nullptr) transfer->record->end(!error);
    if (transfer->work.settle(std::move(error)))
      to_announce.push_back(std::move(transfer));
  }
  void add(TransferPtr transfer, const Error& error) {
    add(std::move(transfer), std::make_exception_ptr(error));
  }
};

}  // namespace allhands
