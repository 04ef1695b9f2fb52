// Runs operations that are given as Calls (src/allhands/backends/call.py), submitted or
// prepared.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "allhands/python/call_fields.hpp"
#include "allhands/python/collectives.hpp"
#include "allhands/python/communicator.hpp"
#include "allhands/python/messages.hpp"
#include "allhands/python/staged.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace allhands::python {
namespace {

[[noreturn]] void refuse(const char* problem, nb::handle op) {
  PyErr_Format(PyExc_NotImplementedError, "Backend native does not support %s%S",
               problem, op.ptr());
  nb::raise_python_error();
}

struct MessageRow {
  std::string_view name;
  decltype(&carry_out_send) run;
  const char* array;  // the field of the Call
};

constexpr MessageRow kMessages[] = {
    {"send", carry_out_send, "input"},
    {"recv", carry_out_recv, "output"},
    {"recv_status", carry_out_recv_status, "output"},
    {"probe", carry_out_probe, "output"},
    {"iprobe", carry_out_iprobe, "output"},
};

std::string_view name_of(nb::handle op) {
  Py_ssize_t length = 0;
  const char* name = PyUnicode_AsUTF8AndSize(op.ptr(), &length);
  if (name == nullptr) nb::raise_python_error();
  return {name, static_cast<std::size_t>(length)};
}

nb::object submit_native(nb::handle self, nb::handle call) {
  const nb::object op = call.attr("op");
  const nb::object timeout = call.attr("timeout"), async_op = call.attr("async_op");
  const std::string_view name = name_of(op);
  if (const CollectiveRow* row = find_row(name))
    return carry_out(nb::cast<PyCommunicator&>(self), *row,
                     CallFields(call, *row).arguments(), timeout, async_op);
  const auto message =
      std::ranges::find(kMessages, name, [](const auto& row) { return row.name; });
  if (message == std::end(kMessages)) refuse("", op);
  return message->run(self, call.attr(message->array), call.attr("peer"),
                      nb::cast<std::int64_t>(call.attr("tag")), timeout,
                      nb::cast<bool>(async_op));
}

nb::object submit(PyCommunicator& self, nb::handle call) {
  return or_staged(
      self, [&] { return submit_native(nb::find(self), call); }, "submit", call);
}

nb::object prepare_native(PyCommunicator& self, nb::handle call) {
  const nb::object op = call.attr("op");
  const CollectiveRow* row = find_row(name_of(op));
  if (row == nullptr) refuse("a persistent ", op);
  return make_request(self, *row, CallFields(call, *row).arguments(),
                      call.attr("timeout"));
}

nb::object prepare(PyCommunicator& self, nb::handle call) {
  return or_staged(self, [&] { return prepare_native(self, call); }, "prepare", call);
}

}  // namespace

void bind_calls(CommunicatorClass& c) {
  c.def("submit", &submit, "call"_a,
        nb::sig("def submit(self, call: typing.Any) -> typing.Any"),
        "Carry out a Call. Return its Work if it has `async_op`, else None.")
      .def("prepare", &prepare, "call"_a,
           nb::sig("def prepare(self, call: typing.Any) -> typing.Any"),
           "Return a Request that carries out a Call again and again.");
}

}  // namespace allhands::python
