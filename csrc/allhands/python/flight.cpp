// What the flight recorder of a group has, for Python.
#include "allhands/python/flight.hpp"

#include <string>
#include <vector>

#include "allhands/base/ticks.hpp"

namespace nb = nanobind;

namespace allhands::python {
namespace {

const TickTimes kLoaded;

const char* name_of(FlightState state) {
  switch (state) {
    case FlightState::Scheduled:
      return "scheduled";
    case FlightState::Completed:
      return "completed";
    case FlightState::Failed:
      return "failed";
    default:
      return "started";
  }
}

nb::object time_of(const TickTimes& times, Ticks ticks) {
  if (ticks == 0) return nb::none();
  return nb::int_(times.wall_time(ticks));
}

nb::dict to_python(const FlightEntry& entry, const TickTimes& times) {
  const FlightRecord& record = entry.record;
  const FlightFacts& facts = record.facts;
  nb::dict told;
  told["op"] = entry.op;
  told["is_message"] = entry.is_message;
  told["sequence"] = entry.sequence;
  told["state"] = name_of(record.state);
  told["dtype"] = allhands::name_of(facts.dtype);
  told["count"] = facts.count;
  told["reduce_op"] = allhands::name_of(facts.reduce_op);
  told["partner"] = facts.partner;
  told["tag"] = facts.tag;
  told["async_op"] = facts.is_async;
  told["issued"] = time_of(times, record.issued);
  told["started"] = time_of(times, record.started);
  told["ended"] = time_of(times, record.ended);
  told["thread"] = record.thread;
  return told;
}

nb::list flight_entries(PyCommunicator& self) {
  std::vector<FlightEntry> entries;
  {
    const nb::gil_scoped_release unlocked;
    entries = self.core().flight_entries();
  }
  const TickTimes times(&kLoaded);
  nb::list told;
  for (const FlightEntry& entry : entries) told.append(to_python(entry, times));
  return told;
}

}  // namespace

void bind_flight(CommunicatorClass& c) {
  c.def("flight_entries", flight_entries,
        nb::sig("def flight_entries(self) -> list[dict[str, typing.Any]]"),
        "The group's last operations, those that wait in its queue last; times in "
        "nanoseconds since 1970, `thread` as threading.get_ident() has it.");
}

}  // namespace allhands::python
