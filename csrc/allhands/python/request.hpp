#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "allhands/python/communicator.hpp"
#include "allhands/python/held_arrays.hpp"

namespace allhands::python {

// A collective to be run again and again, with nothing left to check or to look up.
// Keeps its arrays and its communicator alive. Only one thread may use it at a time; a
// second one gets an error.
class Request {
 public:
  Request(nanobind::object communicator, Operation operation, nanobind::object arrays,
          Deadline::Duration timeout)
      : communicator_(std::move(communicator)),
        operation_(std::move(operation)),
        arrays_(std::move(arrays)),
        held_(arrays_),
        timeout_(timeout) {}

  // Runs the collective to its end.
  void run();
  // Queues the collective.
  void start();
  // Waits for the queued collective to end.
  bool wait(nanobind::handle timeout);
  bool is_active() const { return is_active_; }
  // "<PersistentRequest: all_reduce(float64, count 2, SUM), idle>"
  std::string describe() const;

 private:
  void activate();
  PyCommunicator& communicator() const {
    return *nanobind::inst_ptr<PyCommunicator>(communicator_);
  }

  const nanobind::object communicator_;
  const Operation operation_;
  const nanobind::object arrays_;
  const HeldArrays held_;
  const Deadline::Duration timeout_;
  bool is_active_ = false;
  std::shared_ptr<Work> work_;  // the queued collective's
};

void bind_request(nanobind::module_& m);

}  // namespace allhands::python
