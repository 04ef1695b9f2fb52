// The contents of a group's flight recorder, for Python.
#include "allhands/python/flight.hpp"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <string>
#include <vector>

#include "allhands/base/flight_memory.hpp"
#include "allhands/base/ticks.hpp"
#include "allhands/python/gil.hpp"

namespace nb = nanobind;
using namespace nb::literals;

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

nb::dict to_python(const FlightEntry& entry, const TickTimes& times, bool has_waiters) {
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
  told["is_waited_for"] = !facts.is_async || has_waiters;
  told["issued"] = time_of(times, record.issued);
  told["started"] = time_of(times, record.started);
  told["ended"] = time_of(times, record.ended);
  told["thread"] = record.thread;
  return told;
}

nb::list flight_entries(PyCommunicator& self, std::uint64_t collectives_after,
                        std::uint64_t messages_after) {
  std::vector<FlightEntry> entries;
  {
    const GilReleased unlocked;
    entries = self.core().flight_entries();
  }
  const TickTimes times(&kLoaded);
  nb::list told;
  const bool has_waiters[] = {self.core().has_waiters(false),
                              self.core().has_waiters(true)};
  for (const FlightEntry& entry : entries)
    if (entry.sequence > (entry.is_message ? messages_after : collectives_after))
      told.append(to_python(entry, times, has_waiters[entry.is_message]));
  return told;
}

void mark(FlightMemory& memory, const std::string& world, std::uint32_t rank,
          std::uint32_t size, const std::string& host) {
  memory.mark(world, rank, size, host);
}

}  // namespace

void bind_flight_memory(nb::module_& m) {
  m.def("ticks_now", ticks_now,
        "Return the time in the unit of flight records, which differs between hosts.");
  m.def(
      "collective_name",
      [](std::uint8_t number) { return allhands::name_of(static_cast<Op>(number)); },
      "number"_a, "Of the operation that has this number in flight records.");
  nb::class_<FlightMemory>(m, "FlightMemory",
                           "The anonymous file in which a process keeps its flight "
                           "records. Other processes of the same user can read it.")
      .def_static(
          "create", &FlightMemory::create,
          nb::sig("def create() -> FlightMemory | None"),
          "Create the file; None if there is no descriptor or no memory for it.")
      .def("mark", mark, "world"_a, "rank"_a, "size"_a, "host"_a,
           "Let readers know which rank of which world this process is.")
      .def("leave_to_parent", &FlightMemory::leave_to_parent,
           "Detach a forked child: readers no longer take the file for the child's.");
}

void bind_flight(CommunicatorClass& c) {
  c.def("flight_entries", flight_entries, "collectives_after"_a = 0,
        "messages_after"_a = 0,
        nb::sig("def flight_entries(self, collectives_after: int = 0, messages_after: "
                "int = 0) -> list[dict[str, typing.Any]]"),
        "Return the last operations of the group with higher numbers. Those that wait "
        "in the queue come last. Times are nanoseconds since 1970. `thread` is the "
        "number of threading.get_ident(). `is_waited_for` says whether a thread waits "
        "for operations of this kind.");
}

}  // namespace allhands::python
