#include "allhands/comm/flight_recorder.hpp"

#include <algorithm>
#include <utility>

namespace allhands {

const char* name_of(MessageOp op) {
  switch (op) {
    case MessageOp::Send:
      return "send";
    case MessageOp::Recv:
      return "recv";
    case MessageOp::Probe:
      return "probe";
  }
  return "message";
}

FlightRecorder::FlightRecorder(std::size_t length, std::shared_ptr<FlightMemory> memory,
                               const Membership& group, std::uint64_t key)
    : row_(std::move(memory), {.name = group.name,
                               .key = key,
                               .rank = static_cast<std::uint32_t>(group.rank),
                               .size = static_cast<std::uint32_t>(group.size()),
                               .num_slots = FlightRing::num_slots(length)}),
      collectives_(length, row_, 0),
      messages_(length, row_, 1) {}

std::vector<FlightEntry> FlightRecorder::read() const {
  std::vector<FlightEntry> entries;
  for (const FlightRecord& record : collectives_.read())
    entries.push_back(
        {name_of(static_cast<Op>(record.facts.op)), false, record.number, record});
  for (const FlightRecord& record : messages_.read())
    entries.push_back({name_of(static_cast<MessageOp>(record.facts.op)), true,
                       record.number, record});
  std::ranges::sort(entries, {},
                    [](const FlightEntry& entry) { return entry.record.issued; });
  return entries;
}

FlightEntry FlightRecorder::scheduled(std::uint64_t sequence,
                                      const Descriptor& descriptor, Ticks issued) {
  FlightRecord record{.number = sequence,
                      .state = FlightState::Scheduled,
                      .facts = facts_of(descriptor, true),
                      .issued = issued};
  return {name_of(descriptor.op), false, sequence, record};
}

}  // namespace allhands
