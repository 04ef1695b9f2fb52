#include "allhands/python/port.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "allhands/base/error.hpp"
#include "allhands/python/gil.hpp"
#include "allhands/python/stderr_lines.hpp"
#include "allhands/python/time_limits.hpp"
#include "allhands/transport/tcp/tcp_port.hpp"
#include "allhands/transport/ucx/library.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace allhands::python {
namespace {

TcpPort::UcxUse use_of(const std::string& word) {
  if (word == "no") return TcpPort::UcxUse::No;
  if (word == "offered") return TcpPort::UcxUse::Offered;
  if (word == "needed") return TcpPort::UcxUse::Needed;
  throw Error(ErrorKind::Value,
              "ucx must be no, offered or needed, got '" + word + "'");
}

std::shared_ptr<TcpPort> make_port(const std::vector<std::string>& hosts,
                                   std::uint16_t first, std::uint16_t last,
                                   const TcpPort::Places& advertised, double heartbeat,
                                   bool is_encrypted, unsigned rail, unsigned sockets,
                                   const std::string& ucx) {
  if (!(heartbeat > 0))
    throw Error(ErrorKind::Value,
                "heartbeat must be a number of seconds above 0, got " +
                    std::to_string(heartbeat));
  const TcpPort::Options options = {
      duration_of(heartbeat), advertised, is_encrypted, rail, sockets, use_of(ucx)};
  return {new TcpPort(hosts, first, last, options), [](TcpPort* port) {
            // Deleting may take a second, and the last owner may be a thread without
            // the GIL.
            if (PyGILState_Check() == 0) {
              delete port;
              return;
            }
            const GilReleased no_gil;
            delete port;
          }};
}

void start_port(TcpPort& port, const nb::bytes& bytes, const std::string& speaker) {
  TcpPort::Secret secret;
  if (bytes.size() != secret.size())
    throw Error(ErrorKind::Value, "the secret of a port has " +
                                      std::to_string(secret.size()) + " bytes, got " +
                                      std::to_string(bytes.size()));
  std::memcpy(secret.data(), bytes.data(), secret.size());
  port.start(secret, stderr_lines(speaker));
}

}  // namespace

void bind_port(nb::module_& m) {
  m.def(
      "load_ucx",
      [](const std::string& library) {
        return std::string(Ucx::load(library).version());
      },
      "library"_a,
      "Load UCX from the file `library`, unless it is loaded, and return its "
      "version.\n\n"
      "Raises:\n"
      "    DistBackendError: UCX cannot be loaded, or is too old.");
  nb::class_<TcpPort>(m, "TcpPort",
                      "The address at which this process listens for ranks of other "
                      "hosts, and its connections to them.")
      .def(nb::new_(&make_port), "hosts"_a, "first_port"_a, "last_port"_a,
           nb::kw_only(), "advertised"_a = TcpPort::Places(), "heartbeat"_a = 5.0,
           "is_encrypted"_a = false, "rail"_a = 0, "sockets"_a = 1, "ucx"_a = "no",
           "Listen on each of `hosts`, at one port of `[first_port, last_port]`.\n\n"
           "Args:\n"
           "    hosts: addresses of this machine.\n"
           "    first_port: the lowest port to try; 0 and 0 mean any port.\n"
           "    last_port: the highest port to try.\n"
           "    advertised: the addresses and ports at which others reach this "
           "process, if they differ. Port 0 stands for the port that was found.\n"
           "    heartbeat: a peer that sends nothing for so many seconds counts as "
           "dead.\n"
           "    is_encrypted: whether all connections use TLS 1.3. All ranks need the "
           "same value.\n"
           "    rail: the index of the address of a peer that is tried first, modulo "
           "the number of its addresses.\n"
           "    sockets: the number of sockets for large bodies to each peer, 1 to 16. "
           "All ranks need the same value. Each socket begins at the next address.\n"
           "    ucx: `no`, or `offered` to use UCX for large bodies with peers that "
           "offer it too, or `needed` if all ranks must use it.\n\n"
           "Raises:\n"
           "    ValueError: an argument is wrong.\n"
           "    DistNetworkError: the process cannot listen there.\n"
           "    DistBackendError: there is no OpenSSL 3 to encrypt with, or no UCX.")
      .def(
          "endpoints", [](const TcpPort& port) { return port.endpoints(); },
          "Return where others reach this process: `10.0.0.3:4471` for each host, or "
          "the advertised addresses.")
      .def(
          "start", &start_port, "secret"_a, nb::kw_only(), "speaker"_a = "",
          "Accept peers from now on, if they prove that they know these 32 bytes. "
          "Lines on stderr begin with `speaker`; if that is empty, nothing is printed.")
      .def(
          "break_socket",
          [](TcpPort& port, const std::string& endpoints, int pid,
             std::uint64_t start) {
            return port.break_socket({{}, pid, start, endpoints});
          },
          "endpoints"_a, "pid"_a, "start"_a, nb::call_guard<GilReleased>(),
          "Break the socket to a process, as a reset by the network would. The "
          "connection goes on over another socket. Return False if there is no socket "
          "now.")
      .def("num_sent_by_ucx", &TcpPort::num_sent_by_ucx,
           "Return the number of large bodies that this process has sent by UCX.")
      .def("close", &TcpPort::close, nb::call_guard<GilReleased>(),
           "Send what was written, for a second at most, and close all connections. A "
           "second call does nothing, nor does a call in a forked child.");
}

}  // namespace allhands::python
