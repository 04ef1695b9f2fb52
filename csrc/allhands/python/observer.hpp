#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <exception>

#include "allhands/comm/observer.hpp"

namespace allhands::python {

// Tells a Python object about operations; see src/allhands/backends/observer.py. An
// exception of the object is reported as unraisable, and the operation goes on.
class PyObserver : public Observer {
 public:
  explicit PyObserver(nanobind::object observer) : observer_(std::move(observer)) {}

  std::uint64_t before(const OperationRecord& operation) noexcept override;
  void after(std::uint64_t token, std::exception_ptr error) noexcept override;

  [[nodiscard]] bool tells(nanobind::handle observer) const {
    return observer_.is(observer);
  }

 private:
  const nanobind::object observer_;
};

}  // namespace allhands::python
