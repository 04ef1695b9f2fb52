#include "allhands/comm/flight_recorder.hpp"

#include <algorithm>

namespace allhands {

std::vector<FlightEntry> FlightRecorder::read() const {
  std::vector<FlightEntry> entries;
  for (const FlightRecord& record : collectives_.read())
    entries.push_back(
        {name_of(static_cast<Op>(record.facts.op)), false, record.number, record});
  for (const FlightRecord& record : messages_.read())
    entries.push_back(
        {record.facts.op == kSend ? "send" : "recv", true, record.number, record});
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
