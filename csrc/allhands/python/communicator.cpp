#include "allhands/python/communicator.hpp"

#include <nanobind/stl/map.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <system_error>
#include <thread>

#include "allhands/base/error.hpp"
#include "allhands/python/errors.hpp"
#include "allhands/python/finalizer.hpp"
#include "allhands/python/flight.hpp"
#include "allhands/python/gil.hpp"
#include "allhands/python/named_operation.hpp"
#include "allhands/python/sparse.hpp"
#include "allhands/python/stderr_lines.hpp"
#include "allhands/python/time_limits.hpp"
#include "allhands/python/tuning.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace allhands::python {

// Python's text for a host is the same object for all its ranks; the core's becomes so,
// too. A copy for each rank would be spread over pages that a fork has left shared.
std::vector<ProcessIdentity> processes_of(
    const std::vector<PyCommunicator::Peer>& peers) {
  std::vector<ProcessIdentity> processes;
  processes.reserve(peers.size());
  nb::handle last;
  HostName shared;
  for (const auto& [host, pid, start, endpoints] : peers) {
    if (!host.is(last)) shared = HostName(nb::cast<std::string>(host));
    last = host;
    processes.push_back({shared, pid, start, endpoints});
  }
  return processes;
}

namespace {

Membership membership_of(int rank, const std::string& name,
                         const std::vector<PyCommunicator::Peer>& peers,
                         const std::string& in_world) {
  return {name, rank, processes_of(peers), in_world};
}

Token token_of(const nb::bytes& bytes) {
  Token token;
  if (bytes.size() != token.size())
    throw Error(ErrorKind::Value, "a group's token has " +
                                      std::to_string(token.size()) + " bytes, got " +
                                      std::to_string(bytes.size()));
  std::memcpy(token.data(), bytes.data(), token.size());
  return token;
}

LateNotice notice_after(double seconds, const std::string& speaker) {
  if (!(seconds > 0)) return {};
  return LateNotice(stderr_lines(speaker), duration_of(seconds));
}

// In seconds, after Ctrl-C has told the program not to wait for what is queued.
constexpr double kGoodbyeOfTheInterrupted = 0.2;

std::unique_ptr<Communicator> make_core(const Membership& membership,
                                        const Token& token, const TuningChanges& tuning,
                                        const std::string& figures,
                                        std::shared_ptr<TcpPort> port, double patience,
                                        const std::string& speaker,
                                        std::size_t record_length,
                                        std::shared_ptr<FlightMemory> flight_memory) {
  Communicator::ReachOthers reach_others;
  if (port)
    reach_others = [port](const Membership& group, const Token& secret,
                          const Tuning& chosen, std::function<void()> wake) {
      return port->join(group, secret, chosen, std::move(wake));
    };
  return std::make_unique<Communicator>(
      membership, token, tuning_of(membership, tuning, figures),
      notice_after(patience, speaker), record_length, std::move(reach_others),
      std::move(flight_memory));
}

}  // namespace

PyCommunicator::PyCommunicator(int rank, int size, const std::string& name,
                               const nb::bytes& token, const std::vector<Peer>& peers,
                               const TuningChanges& tuning, const std::string& figures,
                               std::shared_ptr<TcpPort> port, nb::handle timeout,
                               double patience, std::size_t record_length,
                               bool in_rank_order, const std::string& in_world,
                               const std::string& speaker,
                               std::shared_ptr<FlightMemory> flight_memory)
    : core_(make_core(membership_of(rank, name, peers, in_world), token_of(token),
                      tuning, figures, std::move(port), patience, speaker,
                      record_length, std::move(flight_memory))),
      reduce_order_(in_rank_order ? ReduceOrder::Rank : ReduceOrder::Any) {
  set_timeout(timeout);
  if (static_cast<std::size_t>(size) != peers.size())
    throw Error(ErrorKind::Value, "group '" + name + "' of size " +
                                      std::to_string(size) + " has " +
                                      std::to_string(peers.size()) + " peers");
}

// A forked child leaks its copy: it would wait forever for threads that it does not
// have.
PyCommunicator::~PyCommunicator() {
  if (core_->is_forked()) {
    core_.release();
  } else if (core_->is_in_callback()) {
    leave_to_another_thread();
  } else {
    const GilReleased unlocked;
    core_.reset();  // before the objects that its operations use
  }
}

// For a callback that held the last reference: its thread cannot wait for its own end.
// What the core's operations use lives as long as they do.
void PyCommunicator::leave_to_another_thread() {
  Communicator* const core = core_.release();
  for (auto& observer : observers_) (void)observer.release();
  auto* const pending = new std::vector<Pending>(std::move(pending_));
  try {
    std::thread([core, pending] {
      delete core;
      if (is_python_ending()) return;
      const GilHeld gil;
      delete pending;
    }).detach();
  } catch (const std::system_error&) {
    // There is no thread: the memory of the group and its arrays stays until the
    // process ends.
  }
}

Communicator& PyCommunicator::core() const {
  if (process_.is_forked())
    throw Error(ErrorKind::Backend,
                "group '" + core_->name() +
                    "' belongs to the process that forked this one: a forked child is "
                    "no rank; make its own world with init_process_group");
  return *core_;
}

Deadline::Duration PyCommunicator::limit(nb::handle timeout,
                                         const char* operation) const {
  if (timeout.is_none()) return timeout_;
  return naming(operation, [&] { return duration_of(timeout); });
}

void PyCommunicator::set_timeout(nb::handle timeout) {
  timeout_ = duration_of(timeout);
}

void PyCommunicator::run(const Operation& operation, Deadline::Duration timeout) {
  Communicator& communicator = core();
  const GilReleased unlocked;
  communicator.run(operation, {Deadline::after_first_look(timeout), python_interrupt});
}

std::shared_ptr<Work> PyCommunicator::post(Operation operation, nb::object arrays,
                                           Deadline::Duration timeout) {
  auto work = core().post(std::move(operation), Deadline::after(timeout));
  keep(work, std::move(arrays));
  return work;
}

void PyCommunicator::keep(std::shared_ptr<Work> work, nb::object arrays) {
  drop_ended();
  pending_.emplace_back(std::move(work), std::move(arrays));
}

// Stops after some that have not ended, and goes on there next time: to look at all of
// n for each of n operations would take n^2 steps.
void PyCommunicator::drop_ended() {
  constexpr std::size_t kMostInVain = 16;
  for (std::size_t in_vain = 0; in_vain < std::min(kMostInVain, pending_.size());) {
    if (next_look_ >= pending_.size()) next_look_ = 0;
    Pending& seen = pending_[next_look_];
    if (!seen.first->is_completed()) {
      ++next_look_;
      ++in_vain;
      continue;
    }
    std::swap(seen, pending_.back());
    const Pending freed = std::move(pending_.back());
    pending_.pop_back();
    // This frees them, which may run any Python code, including this function.
  }
}

void PyCommunicator::observe(nb::object observer) {
  if (observer.is_none()) return core().observe(nullptr);
  // An observer that an operation may still call stays. If a program switches observing
  // on and off, it has the same one again.
  if (observers_.empty() || !observers_.back()->tells(observer))
    observers_.push_back(std::make_unique<PyObserver>(observer));
  core().observe(observers_.back().get());
}

void PyCommunicator::abort(const std::string& reason) {
  Communicator& communicator = core();
  const GilReleased unlocked;
  communicator.fail(Error(
      ErrorKind::Backend,
      "rank " + std::to_string(communicator.rank()) + " aborted the group: " + reason));
}

std::map<int, std::string> PyCommunicator::endings() const {
  const GilReleased unlocked;
  const auto found = core_->endings();
  return {found.begin(), found.end()};
}

void PyCommunicator::note_failure(const std::string& reason, std::string cause) {
  const GilReleased unlocked;
  core_->note_failure(reason, std::move(cause));
}

void PyCommunicator::disagree(const std::string& reason) {
  Communicator& communicator = core();
  const GilReleased unlocked;
  communicator.fail(Error(ErrorKind::Mismatch, reason));
}

void PyCommunicator::check_close() const { core_->check_close(); }

void PyCommunicator::close(double grace) {
  const bool is_forsaken = std::any_of(
      pending_.begin(), pending_.end(),
      [](const auto& p) { return !p.first->is_completed() && p.first->is_forsaken(); });
  if (is_forsaken) grace = std::min(grace, kGoodbyeOfTheInterrupted);
  {
    const GilReleased unlocked;
    core_->close({Deadline::after(duration_of(grace)), python_interrupt});
  }
  pending_.clear();
}

void bind_communicator(nb::module_& m) {
  using Peer = PyCommunicator::Peer;
  m.def(
      "process_identity",
      [] {
        const ProcessIdentity self = this_process();
        return Peer(nb::cast(self.host.text()), self.pid, self.start, self.endpoints);
      },
      "Return (host, pid, start time, endpoints) of this process, by which its peers "
      "know it. The endpoints are empty: the process listens nowhere.");
  m.def(
      "is_process_alive",
      [](int pid, std::uint64_t start) {
        return is_alive({.host = {}, .pid = pid, .start = start});
      },
      "pid"_a, "start"_a, "Return False once this process of this host has ended.");

  m.attr("ANY_TAG") = kAnyTag;
  CommunicatorClass c(m, "Communicator", "A group of ranks, as one of them sees it.");
  c.def(nb::init<int, int, const std::string&, const nb::bytes&,
                 const std::vector<Peer>&, const TuningChanges&, const std::string&,
                 std::shared_ptr<TcpPort>, nb::handle, double, std::size_t, bool,
                 const std::string&, const std::string&,
                 std::shared_ptr<FlightMemory>>(),
        "rank"_a, "size"_a, nb::kw_only(), "name"_a, "token"_a, "peers"_a, "tuning"_a,
        "figures"_a, "port"_a.none(), "timeout"_a, "patience"_a, "record_length"_a,
        "in_rank_order"_a = false, "in_world"_a = "", "speaker"_a = "",
        "flight_memory"_a.none() = nb::none(),
        "Make this rank's end of a group. It communicates from the first operation "
        "on.\n\n"
        "Args:\n"
        "    token: 32 bytes that only the ranks of this group know.\n"
        "    peers: process_identity() of each rank, with its endpoints.\n"
        "    tuning: as for tuning_here().\n"
        "    figures: as for tuning_here().\n"
        "    port: the port of this process; None if all ranks are on one host.\n"
        "    timeout: the limit of calls that have none of their own.\n"
        "    patience: a rank that waits longer than these seconds says on stderr for "
        "whom; 0 means that it never does.\n"
        "    record_length: the number of collectives and messages that the flight "
        "recorder keeps.\n"
        "    in_rank_order: whether ranks on several hosts reduce in the order of one "
        "host.\n"
        "    in_world: the text behind the name in errors, as in ' (ranks 1, 3 of the "
        "world)'.\n"
        "    speaker: how the lines of this rank on stderr begin.\n"
        "    flight_memory: where the records are kept; None if no other process reads "
        "them.")
      .def("set_timeout", &PyCommunicator::set_timeout, "timeout"_a,
           nb::sig("def set_timeout(self, timeout: datetime.timedelta) -> None"),
           "Set the limit of later calls that have none of their own.")
      .def("observe", &PyCommunicator::observe, "observer"_a.none(),
           nb::sig("def observe(self, observer: typing.Any) -> None"),
           "Tell an Observer of later operations. None means that nobody is told.")
      .def("abort", &PyCommunicator::abort, "reason"_a,
           "Break the group for every rank. All calls that wait in it raise an error.")
      .def("disagree", &PyCommunicator::disagree, "reason"_a,
           "Abort with a CollectiveMismatchError, because the ranks made different "
           "groups.")
      .def("endings", &PyCommunicator::endings,
           "Return the ranks that have aborted the group, each with its reason. Unless "
           "the group is broken, the result also has the ranks that have died, with an "
           "empty reason. It is empty for a group that no rank has used yet.")
      .def("note_failure", &PyCommunicator::note_failure, "reason"_a, "cause"_a,
           "Let close() tell the peers that this failure ended the rank.")
      .def("check_close", &PyCommunicator::check_close,
           "Raise RuntimeError if close() would, which is in a callback of this group.")
      .def("close", &PyCommunicator::close, "grace"_a = 0.0,
           "Wait up to `grace` seconds for queued operations, end those that are left, "
           "and tell the peers that this rank is gone.");
  bind_messages(c);
  bind_shared_arrays(c);
  bind_collectives(c);
  bind_calls(c);
  bind_sparse(c);
  bind_flight(c);
}

}  // namespace allhands::python
