// Point-to-point for Python.
#include "allhands/python/messages.hpp"

#include <nanobind/stl/optional.h>

#include <optional>
#include <utility>

#include "allhands/base/error.hpp"
#include "allhands/python/array.hpp"
#include "allhands/python/communicator.hpp"
#include "allhands/python/errors.hpp"
#include "allhands/python/gil.hpp"
#include "allhands/python/named_operation.hpp"
#include "allhands/python/staged.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace allhands::python {
namespace {

using Self = PyCommunicator&;

enum class Direction { Send, Recv };

using Source = std::optional<int>;  // none: any source

int from(Source peer) { return peer.value_or(kAnySource); }

Limits limits_of(Deadline::Duration limit) {
  return {Deadline::after(limit), python_interrupt};
}

Array intake(const char* operation, Access access, nb::handle tensor,
             const char* name = "tensor") {
  return naming(operation, [&] { return Array(tensor, access, name); });
}

TransferPtr post(Communicator& core, Direction direction, const Buffer& buffer,
                 int peer, std::int64_t tag, const Limits& limits) {
  return direction == Direction::Send ? core.post_send(buffer, peer, tag, limits)
                                      : core.post_recv(buffer, peer, tag, limits);
}

// For a call that may not have to wait at all.
Limits limits_at_first_look(Deadline::Duration limit) {
  return {Deadline::after_first_look(limit), python_interrupt};
}

void send(Self self, nb::handle tensor, int peer, std::int64_t tag,
          nb::handle timeout) {
  Communicator& core = self.core();
  const Deadline::Duration limit = self.limit(timeout, "send");
  const Array array = intake("send", Access::Read, tensor);
  const GilReleased unlocked;
  core.send(array.buffer(), peer, tag, limits_at_first_look(limit));
}

int recv(Self self, nb::handle tensor, Source peer, std::int64_t tag,
         nb::handle timeout) {
  Communicator& core = self.core();
  const Deadline::Duration limit = self.limit(timeout, "recv");
  const Array array = intake("recv", Access::Write, tensor);
  const GilReleased unlocked;
  return core.recv(array.buffer(), from(peer), tag, limits_at_first_look(limit));
}

// Posts the transfer and leaves it to the group's thread.
nb::object start(nb::object self, Direction direction, nb::handle tensor, int peer,
                 std::int64_t tag, nb::handle timeout) {
  const bool sends = direction == Direction::Send;
  const char* const name = sends ? "isend" : "irecv";
  const Array array = intake(name, sends ? Access::Read : Access::Write, tensor);
  auto& communicator = nb::cast<Self>(self);
  const Limits limits = limits_of(communicator.limit(timeout, name));
  TransferPtr posted;
  {
    const GilReleased unlocked;
    posted = post(communicator.core(), direction, array.buffer(), peer, tag, limits);
    communicator.core().engine().drive(posted);
  }
  communicator.keep({posted, &posted->work}, array.owner());
  return wrap(std::move(posted), std::move(self), array.listed());
}

// Waits for the receive here, or leaves it to the group's thread.
nb::object recv_fit(nb::object self, const Buffer& buffer, nb::object owner,
                    nb::list outputs, Source source, std::int64_t tag,
                    nb::handle timeout, bool async_op, Fit fit) {
  auto& communicator = nb::cast<Self>(self);
  Communicator& core = communicator.core();
  const char* const name = fit == Fit::Look ? "probe" : "recv";
  const Limits limits = limits_of(communicator.limit(timeout, name));
  TransferPtr posted;
  {
    const GilReleased unlocked;
    if (async_op) {
      posted = core.post_recv(buffer, from(source), tag, limits, fit);
      core.engine().drive(posted);
    } else {
      posted = core.recv_fit(buffer, from(source), tag, limits, fit);
    }
  }
  if (async_op) communicator.keep({posted, &posted->work}, std::move(owner));
  return wrap(std::move(posted), std::move(self), std::move(outputs));
}

// Whether both are other ranks of the group.
bool are_others(const Communicator& core, int to, int from) {
  const auto is_other = [&core](int peer) {
    return peer >= 0 && peer < core.size() && peer != core.rank();
  };
  return is_other(to) && is_other(from);
}

// Sends what needs no wait, then receives; or posts both, then waits for both.
int exchange(Self self, nb::handle tensor, int to, std::int64_t send_tag,
             nb::handle output, Source source, std::int64_t recv_tag,
             nb::handle timeout) {
  Communicator& core = self.core();
  const Array sent_array = intake("sendrecv", Access::Read, tensor);
  const Array received_array = intake("sendrecv", Access::Write, output, "output");
  const Deadline::Duration limit = self.limit(timeout, "sendrecv");
  const GilReleased unlocked;
  if (are_others(core, to, from(source))) {
    const Limits at_first_look = limits_at_first_look(limit);
    if (core.send_at_once(sent_array.buffer(), to, send_tag, at_first_look))
      return core.recv(received_array.buffer(), from(source), recv_tag, at_first_look);
  }
  const Limits limits = limits_of(limit);
  const TransferPtr received =
      core.post_recv(received_array.buffer(), from(source), recv_tag, limits);
  try {
    const TransferPtr sent = core.post_send(sent_array.buffer(), to, send_tag, limits);
    core.engine().wait(sent, limits, ProgressEngine::AtEnd::GiveUp);
  } catch (const Error& error) {
    core.engine().give_up({&received, 1},
                          error);  // else it would write to a freed array
    throw;
  }
  core.engine().wait(received, limits, ProgressEngine::AtEnd::GiveUp);
  return received->source;
}

}  // namespace

nb::object carry_out_send(nb::handle communicator, nb::handle tensor, nb::handle peer,
                          std::int64_t tag, nb::handle timeout, bool async_op) {
  if (async_op)
    return start(nb::borrow(communicator), Direction::Send, tensor, nb::cast<int>(peer),
                 tag, timeout);
  send(nb::cast<Self>(communicator), tensor, nb::cast<int>(peer), tag, timeout);
  return nb::none();
}

nb::object carry_out_recv(nb::handle communicator, nb::handle tensor, nb::handle peer,
                          std::int64_t tag, nb::handle timeout, bool async_op) {
  const Source source = nb::cast<Source>(peer);
  if (async_op)
    return start(nb::borrow(communicator), Direction::Recv, tensor, from(source), tag,
                 timeout);
  recv(nb::cast<Self>(communicator), tensor, source, tag, timeout);
  return nb::none();
}

nb::object carry_out_recv_status(nb::handle communicator, nb::handle tensor,
                                 nb::handle peer, std::int64_t tag, nb::handle timeout,
                                 bool async_op) {
  nb::object self = nb::borrow(communicator);
  const Array array = intake("recv", Access::Write, tensor);
  return recv_fit(std::move(self), array.buffer(), array.owner(), array.listed(),
                  nb::cast<Source>(peer), tag, timeout, async_op, Fit::UpTo);
}

nb::object carry_out_probe(nb::handle communicator, nb::handle, nb::handle peer,
                           std::int64_t tag, nb::handle timeout, bool async_op) {
  return recv_fit(nb::borrow(communicator), {}, nb::none(), nb::list(),
                  nb::cast<Source>(peer), tag, timeout, async_op, Fit::Look);
}

nb::object carry_out_iprobe(nb::handle communicator, nb::handle, nb::handle peer,
                            std::int64_t tag, nb::handle timeout, bool) {
  auto& self = nb::cast<Self>(communicator);
  const Limits limits = limits_of(self.limit(timeout, "iprobe"));
  const Source source = nb::cast<Source>(peer);
  TransferPtr probe;
  {
    const GilReleased unlocked;
    probe = self.core().probe_now(from(source), tag, limits);
  }
  if (!probe) return nb::none();
  return wrap(std::move(probe), nb::borrow(communicator), nb::list());
}

void bind_messages(CommunicatorClass& c) {
  c.def(
      "send",
      [](Self self, nb::handle tensor, int peer, std::int64_t tag, nb::handle timeout) {
        const auto native = [&] {
          send(self, tensor, peer, tag, timeout);
          return nb::none();
        };
        return or_staged(self, native, "send", tensor, peer, tag, timeout);
      },
      "tensor"_a.none(), "peer"_a, "tag"_a, "timeout"_a.none(),
      nb::sig("def send(self, tensor: typing.Any, peer: int, tag: int, timeout: "
              "datetime.timedelta | None) -> None"));
  c.def(
      "recv",
      [](Self self, nb::handle tensor, Source peer, std::int64_t tag,
         nb::handle timeout) {
        const auto native = [&] {
          return nb::object(nb::int_(recv(self, tensor, peer, tag, timeout)));
        };
        return or_staged(self, native, "recv", tensor, peer, tag, timeout);
      },
      "tensor"_a.none(), "peer"_a.none(), "tag"_a, "timeout"_a.none(),
      nb::sig("def recv(self, tensor: typing.Any, peer: int | None, tag: int, "
              "timeout: datetime.timedelta | None) -> int"),
      "Receive a message and return its source. `peer` None means any rank.");
  c.def(
      "isend",
      [](Self self, nb::handle tensor, int peer, std::int64_t tag, nb::handle timeout) {
        const auto native = [&] {
          return start(nb::find(self), Direction::Send, tensor, peer, tag, timeout);
        };
        return or_staged(self, native, "isend", tensor, peer, tag, timeout);
      },
      "tensor"_a.none(), "peer"_a, "tag"_a, "timeout"_a.none(),
      nb::sig("def isend(self, tensor: typing.Any, peer: int, tag: int, timeout: "
              "datetime.timedelta | None) -> typing.Any"));
  c.def(
      "irecv",
      [](Self self, nb::handle tensor, Source peer, std::int64_t tag,
         nb::handle timeout) {
        const auto native = [&] {
          return start(nb::find(self), Direction::Recv, tensor, from(peer), tag,
                       timeout);
        };
        return or_staged(self, native, "irecv", tensor, peer, tag, timeout);
      },
      "tensor"_a.none(), "peer"_a.none(), "tag"_a, "timeout"_a.none(),
      nb::sig("def irecv(self, tensor: typing.Any, peer: int | None, tag: int, "
              "timeout: datetime.timedelta | None) -> typing.Any"));
  c.def(
      "sendrecv",
      [](Self self, nb::handle tensor, int dst, std::int64_t tag, nb::handle output,
         Source src, std::int64_t recv_tag, nb::handle timeout) {
        const auto native = [&] {
          return nb::object(nb::int_(
              exchange(self, tensor, dst, tag, output, src, recv_tag, timeout)));
        };
        return or_staged(self, native, "sendrecv", tensor, dst, tag, output, src,
                         recv_tag, timeout);
      },
      "tensor"_a.none(), "dst"_a, "tag"_a, "output"_a.none(), "src"_a.none(),
      "recv_tag"_a, "timeout"_a.none(),
      nb::sig("def sendrecv(self, tensor: typing.Any, dst: int, tag: int, output: "
              "typing.Any, src: int | None, recv_tag: int, timeout: "
              "datetime.timedelta | None) -> int"));
}

}  // namespace allhands::python
