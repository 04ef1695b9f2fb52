// Point-to-point for Python.
#include <nanobind/stl/shared_ptr.h>

#include "allhands/base/error.hpp"
#include "allhands/python/array.hpp"
#include "allhands/python/communicator.hpp"
#include "allhands/python/errors.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace allhands::python {
namespace {

using Self = PyCommunicator&;

enum class Direction { Send, Recv };

Limits limits_of(double timeout) {
  return {Deadline::after(duration_of(timeout)), python_interrupt};
}

Array intake(Direction direction, nb::handle tensor) {
  return Array(tensor, direction == Direction::Send ? Access::Read : Access::Write,
               "tensor");
}

TransferPtr post(Communicator& core, Direction direction, const Buffer& buffer,
                 int peer, std::int64_t tag, const Limits& limits) {
  return direction == Direction::Send ? core.post_send(buffer, peer, tag, limits)
                                      : core.post_recv(buffer, peer, tag, limits);
}

// Of a call that may not have to wait at all.
Limits limits_at_first_look(double timeout) {
  return {Deadline::after_first_look(duration_of(timeout)), python_interrupt};
}

void send(Communicator& core, nb::handle tensor, int peer, std::int64_t tag,
          double timeout) {
  const Array array = intake(Direction::Send, tensor);
  const nb::gil_scoped_release unlocked;
  core.send(array.buffer(), peer, tag, limits_at_first_look(timeout));
}

int recv(Communicator& core, nb::handle tensor, int peer, std::int64_t tag,
         double timeout) {
  const Array array = intake(Direction::Recv, tensor);
  const nb::gil_scoped_release unlocked;
  return core.recv(array.buffer(), peer, tag, limits_at_first_look(timeout));
}

// Posts it and leaves it to the group's thread.
nb::object start(nb::object self, Direction direction, nb::handle tensor, int peer,
                 std::int64_t tag, double timeout) {
  const Array array = intake(direction, tensor);
  auto& communicator = nb::cast<Self>(self);
  TransferPtr posted;
  {
    const nb::gil_scoped_release unlocked;
    posted = post(communicator.core(), direction, array.buffer(), peer, tag,
                  limits_of(timeout));
    communicator.core().engine().drive(posted);
  }
  communicator.keep({posted, &posted->work}, array.owner());
  ProgressEngine& engine = communicator.core().engine();
  return wrap(std::move(posted), engine, std::move(self));
}

// Posts both, then waits for both.
int exchange(Communicator& core, nb::handle tensor, int to, std::int64_t send_tag,
             nb::handle output, int from, std::int64_t recv_tag, double timeout) {
  const Array sent_array(tensor, Access::Read, "tensor");
  const Array received_array(output, Access::Write, "output");
  const nb::gil_scoped_release unlocked;
  const Limits limits = limits_of(timeout);
  const TransferPtr received =
      core.post_recv(received_array.buffer(), from, recv_tag, limits);
  try {
    const TransferPtr sent = core.post_send(sent_array.buffer(), to, send_tag, limits);
    core.engine().wait(sent, limits, ProgressEngine::AtEnd::GiveUp);
  } catch (const Error& error) {
    core.engine().give_up(received, error);  // it would write to a freed array
    throw;
  }
  core.engine().wait(received, limits, ProgressEngine::AtEnd::GiveUp);
  return received->source;
}

}  // namespace

void bind_messages(CommunicatorClass& c) {
  c.def(
      "send",
      [](Self self, nb::handle tensor, int peer, std::int64_t tag, double timeout) {
        send(self.core(), tensor, peer, tag, timeout);
      },
      "tensor"_a.none(), "peer"_a, "tag"_a, "timeout"_a,
      nb::sig("def send(self, tensor: typing.Any, peer: int, tag: int, timeout: float) "
              "-> None"));
  c.def(
      "recv",
      [](Self self, nb::handle tensor, int peer, std::int64_t tag, double timeout) {
        return recv(self.core(), tensor, peer, tag, timeout);
      },
      "tensor"_a.none(), "peer"_a, "tag"_a, "timeout"_a,
      nb::sig("def recv(self, tensor: typing.Any, peer: int, tag: int, timeout: float) "
              "-> int"),
      "The rank it came from; peer -1: from any.");
  c.def(
      "isend",
      [](nb::object self, nb::handle tensor, int peer, std::int64_t tag,
         double timeout) {
        return start(self, Direction::Send, tensor, peer, tag, timeout);
      },
      "tensor"_a.none(), "peer"_a, "tag"_a, "timeout"_a,
      nb::sig("def isend(self, tensor: typing.Any, peer: int, tag: int, timeout: "
              "float) -> Transfer"));
  c.def(
      "irecv",
      [](nb::object self, nb::handle tensor, int peer, std::int64_t tag,
         double timeout) {
        return start(self, Direction::Recv, tensor, peer, tag, timeout);
      },
      "tensor"_a.none(), "peer"_a, "tag"_a, "timeout"_a,
      nb::sig("def irecv(self, tensor: typing.Any, peer: int, tag: int, timeout: "
              "float) -> Transfer"));
  c.def(
      "sendrecv",
      [](Self self, nb::handle tensor, int to, std::int64_t send_tag, nb::handle output,
         int from, std::int64_t recv_tag, double timeout) {
        return exchange(self.core(), tensor, to, send_tag, output, from, recv_tag,
                        timeout);
      },
      "tensor"_a.none(), "to"_a, "send_tag"_a, "output"_a.none(), "from_"_a,
      "recv_tag"_a, "timeout"_a,
      nb::sig("def sendrecv(self, tensor: typing.Any, to: int, send_tag: int, output: "
              "typing.Any, from_: int, recv_tag: int, timeout: float) -> int"));
}

}  // namespace allhands::python
