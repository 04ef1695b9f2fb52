#include "allhands/python/time_limits.hpp"

#include <chrono>

#include "allhands/python/errors.hpp"
#include "allhands/python/imported.hpp"

namespace nb = nanobind;

namespace allhands::python {

Deadline::Duration duration_of(double seconds) {
  constexpr double kMost = 9e9;  // fits into 64 bits of nanoseconds: 285 years
  if (!(seconds < kMost)) return Deadline::Duration::max();
  return std::chrono::duration_cast<Deadline::Duration>(
      std::chrono::duration<double>(seconds));
}

Deadline::Duration duration_of(nb::handle timeout) {
  static PyObject* const to_seconds = imported("allhands.options", "to_seconds");
  return duration_of(nb::cast<double>(nb::handle(to_seconds)(timeout)));
}

Limits limits_of_wait(nb::handle timeout) {
  const auto none = Deadline::Duration::zero();
  const Deadline::Duration limit = timeout.is_none() ? none : duration_of(timeout);
  return {limit == none ? Deadline::never() : Deadline::after(limit), python_interrupt};
}

}  // namespace allhands::python
