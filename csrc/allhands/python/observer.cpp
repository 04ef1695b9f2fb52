#include "allhands/python/observer.hpp"

#include <limits>

#include "allhands/python/errors.hpp"
#include "allhands/python/imported.hpp"

namespace nb = nanobind;

namespace allhands::python {
namespace {

// Marks an operation that the object failed to take.
constexpr std::uint64_t kUntold = std::numeric_limits<std::uint64_t>::max();

nb::object text(std::string_view characters) {
  return nb::str(characters.data(), characters.size());
}

nb::object to_python(const OperationRecord& operation) {
  static PyObject* const type =
      imported("allhands.backends.observer", "OperationRecord");
  return nb::handle(type)(text(operation.group), text(operation.op), operation.sequence,
                          name_of(operation.dtype), operation.count, operation.root,
                          operation.peer, operation.tag, operation.is_async);
}

}  // namespace

std::uint64_t PyObserver::before(const OperationRecord& operation) noexcept {
  std::uint64_t token = kUntold;
  run_unraisable(observer_, [&] {
    token = nb::cast<std::uint64_t>(observer_.attr("before")(to_python(operation)));
  });
  return token;
}

void PyObserver::after(std::uint64_t token, std::exception_ptr error) noexcept {
  if (token == kUntold) return;
  run_unraisable(observer_,
                 [&] { observer_.attr("after")(token, to_exception(error)); });
}

}  // namespace allhands::python
