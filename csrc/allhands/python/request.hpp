#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "allhands/python/communicator.hpp"

namespace allhands::python {

// A collective to be run again and again, with nothing left to check or to look up.
// Keeps its arrays and its communicator alive. For one thread at a time: a second one
// gets an error.
class Request {
 public:
  Request(nanobind::object communicator, Operation operation, nanobind::object arrays,
          Deadline::Duration timeout)
      : communicator_(std::move(communicator)),
        operation_(std::move(operation)),
        arrays_(std::move(arrays)),
        timeout_(timeout) {}

  // Runs it to its end.
  void run();
  // Queues it.
  void start();
  // Takes what was queued to its end.
  bool wait(nanobind::handle timeout);
  bool is_active() const { return is_active_; }

 private:
  void activate();
  PyCommunicator& communicator() const {
    return *nanobind::inst_ptr<PyCommunicator>(communicator_);
  }

  const nanobind::object communicator_;
  const Operation operation_;
  const nanobind::object arrays_;
  const Deadline::Duration timeout_;
  bool is_active_ = false;
  std::shared_ptr<Work> work_;  // of what was queued
};

void bind_request(nanobind::module_& m);

}  // namespace allhands::python
