// A Communicator for Python. It runs operations without the GIL, and keeps the arrays
// of queued operations alive until it next checks and finds them done.
//
// Its methods are bound area by area: collectives.cpp, messages.cpp, shared_arrays.cpp.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "allhands/base/fork_mark.hpp"
#include "allhands/comm/communicator.hpp"
#include "allhands/python/observer.hpp"
#include "allhands/python/tuning.hpp"
#include "allhands/python/work.hpp"
#include "allhands/transport/tcp/tcp_port.hpp"

namespace allhands::python {

class PyCommunicator {
 public:
  // Host, pid, start time, endpoints.
  using Peer = std::tuple<nanobind::str, int, std::uint64_t, std::string>;

  PyCommunicator(int rank, int size, const std::string& name,
                 const nanobind::bytes& token, const std::vector<Peer>& peers,
                 const TuningChanges& tuning, const std::string& figures,
                 std::shared_ptr<TcpPort> port, nanobind::handle timeout,
                 double patience, std::size_t record_length, bool in_rank_order,
                 const std::string& in_world, const std::string& speaker,
                 std::shared_ptr<FlightMemory> flight_memory);
  ~PyCommunicator();

  // Throws Backend in a forked child, which has the memory of a rank but is none.
  Communicator& core() const;

  // The order of its reductions.
  ReduceOrder reduce_order() const { return reduce_order_; }
  // The limit of an operation whose caller passed this timedelta, or None.
  Deadline::Duration limit(nanobind::handle timeout, const char* operation) const;
  // Sets the limit that None stands for.
  void set_timeout(nanobind::handle timeout);

  // Runs `operation` now.
  void run(const Operation& operation, Deadline::Duration timeout);
  // Queues the operation and returns its Work; see `keep`.
  std::shared_ptr<Work> post(Operation operation, nanobind::object arrays,
                             Deadline::Duration timeout);
  // Keeps `arrays` alive until `work` has ended, and then until `drop_ended`.
  void keep(std::shared_ptr<Work> work, nanobind::object arrays);
  // Frees the arrays of what has ended, as far as it looks: called as something is
  // posted or waited for.
  void drop_ended();

  // Tells `observer` of later operations; None: nobody.
  void observe(nanobind::object observer);

  void abort(const std::string& reason);
  std::map<int, std::string> endings() const;
  void note_failure(const std::string& reason, std::string cause);
  void disagree(const std::string& reason);
  void check_close() const;
  void close(double grace);

 private:
  void leave_to_another_thread();

  using Pending = std::pair<std::shared_ptr<Work>, nanobind::object>;

  // All observers so far: an operation that is under way tells the one that it began
  // with.
  std::vector<std::unique_ptr<PyObserver>> observers_;
  std::unique_ptr<Communicator> core_;
  Deadline::Duration timeout_;
  const ReduceOrder reduce_order_;
  const ForkMark process_;
  std::vector<Pending> pending_;
  std::size_t next_look_ = 0;  // the index from which drop_ended() goes on
};

using CommunicatorClass = nanobind::class_<PyCommunicator>;

void bind_communicator(nanobind::module_& m);
void bind_collectives(CommunicatorClass& c);
void bind_calls(CommunicatorClass& c);
void bind_messages(CommunicatorClass& c);
void bind_shared_arrays(CommunicatorClass& c);

// `peers` as the core has them.
std::vector<ProcessIdentity> processes_of(
    const std::vector<PyCommunicator::Peer>& peers);

}  // namespace allhands::python
