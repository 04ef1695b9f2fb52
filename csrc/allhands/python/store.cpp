// The TCP store's server and client for Python. Limits are in seconds; values are
// bytes, read in place, with the GIL released.
#include "allhands/python/store.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "allhands/base/deadline.hpp"
#include "allhands/net/listener.hpp"
#include "allhands/python/errors.hpp"
#include "allhands/python/finalizer.hpp"
#include "allhands/python/gil.hpp"
#include "allhands/python/time_limits.hpp"
#include "allhands/store/client.hpp"
#include "allhands/store/relay.hpp"
#include "allhands/store/server.hpp"

namespace nb = nanobind;

namespace allhands::python {
namespace {

using store::Client;
using store::LastWill;
using store::Link;
using store::Relay;
using store::Server;
using store::Target;
using store::Traffic;
using GilRelease = nb::call_guard<GilReleased>;

// The limit of this thread's latest request, which began when the limit did.
thread_local Deadline limit_of_request = Deadline::never();

Deadline after(double seconds) {
  return limit_of_request = Deadline::after(duration_of(seconds));
}

nb::bytes to_bytes(std::string_view value) {
  return nb::bytes(value.data(), value.size());
}

std::string_view view_of(const nb::bytes& value) {
  return {static_cast<const char*>(value.data()), value.size()};
}

Client::Keys views_of(const std::vector<std::string>& keys) {
  return {keys.begin(), keys.end()};
}

void make_server(Server* self, const std::string& host, std::uint16_t port,
                 std::string secret, double timeout, int fd) {
  const GilReleased no_gil;
  std::vector<Fd> listeners;
  if (fd >= 0)
    listeners.push_back(adopt_listener(fd, port));
  else
    listeners = listen_on(host, port, {after(timeout), &python_interrupt});
  new (self) Server(std::move(listeners), std::move(secret));
}

void make_relay(Relay* self, std::string host, std::uint16_t port, std::string secret,
                double timeout) {
  const GilReleased no_gil;
  const Deadline deadline = after(timeout);
  const Target server = {std::move(host), port, std::move(secret), &python_interrupt};
  Link to_server(server, deadline);
  new (self) Relay(listen_on("127.0.0.1", 0, {deadline, &python_interrupt}), server,
                   std::move(to_server));
}

// Called while a thread waits in a store; set once.
PyObject* watch = nullptr;

// Whether this thread's request goes without.
thread_local bool is_unwatched = false;

struct Unwatched {
  Unwatched() { is_unwatched = true; }
  ~Unwatched() { is_unwatched = false; }
};

// Like python_interrupt, and as well if the watch raises.
bool store_interrupt() {
  const GilHeld gil;
  if (PyErr_CheckSignals() != 0) return true;
  if (watch == nullptr || is_unwatched) return false;
  const auto seconds = [](Deadline::Duration duration) {
    return std::chrono::duration<double>(duration).count();
  };
  PyObject* const nothing = unless_ended([&] {
    return PyObject_CallFunction(watch, "dd", seconds(limit_of_request.elapsed()),
                                 seconds(limit_of_request.limit()));
  });
  Py_XDECREF(nothing);
  return nothing == nullptr;
}

void watch_store_waits(nb::handle look) { watch = look.inc_ref().ptr(); }

void make_client(Client* self, std::string host, std::uint16_t port, std::string secret,
                 double timeout, std::string name) {
  const GilReleased no_gil;
  Target server = {std::move(host), port, std::move(secret), &store_interrupt};
  server.name = std::move(name);
  new (self) Client(std::move(server), after(timeout));
}

// Runs the call without the GIL, then turns the answer into bytes with it.
template <typename Call>
nb::bytes bytes_of(const Call& call) {
  const Client::Reply reply = [&] {
    const GilReleased no_gil;
    return call();
  }();
  return to_bytes(reply.value());
}

void multi_set(Client& self, const std::vector<std::string>& keys,
               const std::vector<nb::bytes>& values, double timeout) {
  Client::Keys fields;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    fields.emplace_back(keys[i]);
    fields.push_back(view_of(values.at(i)));
  }
  const GilReleased no_gil;
  self.multi_set(fields, after(timeout));
}

std::vector<nb::bytes> multi_get(Client& self, const std::vector<std::string>& keys,
                                 double timeout) {
  Client::Reply reply = [&] {
    const GilReleased no_gil;
    return self.multi_get(views_of(keys), after(timeout));
  }();
  std::vector<nb::bytes> values;
  for (const std::string& value : reply.fields()) values.push_back(to_bytes(value));
  return values;
}

void bind_server(nb::module_& m) {
  nb::class_<Traffic>(m, "StoreTraffic",
                      "What a store's server has counted since it began.")
      .def_ro("connections", &Traffic::connections)
      .def_ro("requests", &Traffic::requests)
      .def_ro("bytes_received", &Traffic::bytes_received,
              "The handshakes count too; the headers of TCP do not.")
      .def_ro("bytes_sent", &Traffic::bytes_sent);
  nb::class_<Server>(m, "StoreServer", nb::is_weak_referenceable(),
                     "The server of a store, which serves until it is deleted. Its "
                     "thread never takes the GIL.")
      .def("__init__", &make_server, nb::arg("host"), nb::arg("port"),
           nb::arg("secret"), nb::arg("timeout"), nb::arg("listen_fd") = -1,
           "Listen at `host`:`port`, or on the bound socket `listen_fd`, which the "
           "server then owns.")
      .def_prop_ro("port", &Server::port)
      .def("traffic", &Server::traffic,
           "Return what the server has counted since it began.");
}

void bind_relay(nb::module_& m) {
  nb::class_<Relay>(m, "StoreRelay",
                    "Serves a store to the processes of this host, at 127.0.0.1, and "
                    "asks the store's server over one connection. It serves until it "
                    "is deleted or the server is gone. Its thread never takes the GIL.")
      .def("__init__", &make_relay, nb::arg("host"), nb::arg("port"), nb::arg("secret"),
           nb::arg("timeout"), "Connect to the server. Keep trying until the limit.")
      .def_prop_ro("port", &Relay::port)
      .def_prop_ro("own_address", &Relay::own_address,
                   "The address of this process on its way to the server.")
      .def("traffic", &Relay::traffic,
           "Return what the clients have sent and received.");
}

void bind_keys(nb::class_<Client>& client) {
  client
      .def(
          "set",
          [](Client& self, std::string_view key, const nb::bytes& value,
             double timeout) {
            const std::string_view view = view_of(value);
            const GilReleased no_gil;
            self.set(key, view, after(timeout));
          },
          nb::arg("key"), nb::arg("value"), nb::arg("timeout"))
      .def(
          "get",
          [](Client& self, std::string_view key, double timeout) {
            return bytes_of([&] { return self.get(key, after(timeout)); });
          },
          nb::arg("key"), nb::arg("timeout"))
      .def(
          "get_unwatched",
          [](Client& self, std::string_view key, double timeout) {
            const Unwatched request;
            return bytes_of([&] { return self.get(key, after(timeout)); });
          },
          nb::arg("key"), nb::arg("timeout"),
          "Like `get`, but without calls of the function of `watch_store_waits`. It is "
          "for waits of this package itself, which watches the ranks in another way.")
      .def(
          "add",
          [](Client& self, std::string_view key, std::int64_t amount, double timeout) {
            return self.add(key, amount, after(timeout));
          },
          nb::arg("key"), nb::arg("amount"), nb::arg("timeout"), GilRelease())
      .def(
          "append",
          [](Client& self, std::string_view key, const nb::bytes& value,
             double timeout) {
            const std::string_view view = view_of(value);
            const GilReleased no_gil;
            self.append(key, view, after(timeout));
          },
          nb::arg("key"), nb::arg("value"), nb::arg("timeout"))
      .def(
          "compare_set",
          [](Client& self, std::string_view key, const nb::bytes& expected,
             const nb::bytes& desired, double timeout) {
            const std::string_view from = view_of(expected), to = view_of(desired);
            return bytes_of(
                [&] { return self.compare_set(key, from, to, after(timeout)); });
          },
          nb::arg("key"), nb::arg("expected"), nb::arg("desired"), nb::arg("timeout"))
      .def(
          "delete_key",
          [](Client& self, std::string_view key, double timeout) {
            return self.delete_key(key, after(timeout));
          },
          nb::arg("key"), nb::arg("timeout"), GilRelease());
}

void bind_many_keys(nb::class_<Client>& client) {
  client
      .def(
          "check",
          [](Client& self, const std::vector<std::string>& keys, double timeout) {
            return self.check(views_of(keys), after(timeout));
          },
          nb::arg("keys"), nb::arg("timeout"), GilRelease())
      .def(
          "wait",
          [](Client& self, const std::vector<std::string>& keys, double timeout) {
            self.wait(views_of(keys), after(timeout));
          },
          nb::arg("keys"), nb::arg("timeout"), GilRelease())
      .def(
          "survey",
          [](Client& self, std::string_view prefix, std::int64_t count,
             double timeout) {
            std::string found;
            {
              const GilReleased no_gil;
              found = self.survey(prefix, count, after(timeout));
            }
            return nb::bytes(found.data(), found.size());
          },
          nb::arg("prefix"), nb::arg("count"), nb::arg("timeout"))
      .def(
          "num_keys",
          [](Client& self, double timeout) { return self.num_keys(after(timeout)); },
          nb::arg("timeout"), GilRelease())
      .def(
          "list_keys",
          [](Client& self, double timeout) { return self.list_keys(after(timeout)); },
          nb::arg("timeout"), GilRelease())
      .def("multi_get", &multi_get, nb::arg("keys"), nb::arg("timeout"))
      .def("multi_set", &multi_set, nb::arg("keys"), nb::arg("values"),
           nb::arg("timeout"));
}

void bind_queues(nb::class_<Client>& client) {
  client
      .def(
          "queue_push",
          [](Client& self, std::string_view key, const nb::bytes& value,
             double timeout) {
            const std::string_view view = view_of(value);
            const GilReleased no_gil;
            self.queue_push(key, view, after(timeout));
          },
          nb::arg("key"), nb::arg("value"), nb::arg("timeout"))
      .def(
          "queue_pop",
          [](Client& self, std::string_view key, bool block, double timeout) {
            return bytes_of([&] { return self.queue_pop(key, block, after(timeout)); });
          },
          nb::arg("key"), nb::arg("block"), nb::arg("timeout"))
      .def(
          "queue_len",
          [](Client& self, std::string_view key, double timeout) {
            return self.queue_len(key, after(timeout));
          },
          nb::arg("key"), nb::arg("timeout"), GilRelease());
}

// Withdrawn when the object is destroyed, unless that happens because the process ends.
class PyLastWill {
 public:
  explicit PyLastWill(std::unique_ptr<LastWill> will) : will_(std::move(will)) {}
  PyLastWill(PyLastWill&&) = default;
  ~PyLastWill() {
    if (will_ != nullptr && !is_python_ending()) will_->withdraw();
  }

 private:
  std::unique_ptr<LastWill> will_;
};

void bind_last_wills(nb::module_& m, nb::class_<Client>& client) {
  nb::class_<PyLastWill>(m, "StoreLastWill",
                         "A key that the server sets when this process ends. If this "
                         "object is deleted before, the server does not set it.");
  client.def(
      "leave_will",
      [](Client& self, std::string_view key, const nb::bytes& value, double timeout) {
        const std::string_view view = view_of(value);
        const GilReleased no_gil;
        return PyLastWill(self.leave_will(key, view, after(timeout)));
      },
      nb::arg("key"), nb::arg("value"), nb::arg("timeout"), nb::keep_alive<0, 1>(),
      "Delete `key` now, and let the server set it to `value` when this process ends.");
}

void bind_meetings(nb::class_<Client>& client) {
  client
      .def(
          "barrier",
          [](Client& self, std::string_view key, std::int64_t size, double timeout) {
            self.barrier(key, size, after(timeout));
          },
          nb::arg("key"), nb::arg("size"), nb::arg("timeout"), GilRelease())
      .def(
          "join",
          [](Client& self, bool is_key, double timeout) {
            return self.join(is_key, after(timeout));
          },
          nb::arg("is_key"), nb::arg("timeout"), GilRelease())
      .def(
          "await_workers",
          [](Client& self, std::int64_t count, double timeout) {
            self.await_workers(count, after(timeout));
          },
          nb::arg("count"), nb::arg("timeout"), GilRelease());
}

}  // namespace

void bind_store(nb::module_& m) {
  bind_server(m);
  bind_relay(m);
  m.def("watch_store_waits", &watch_store_waits, nb::arg("look"),
        nb::sig("def watch_store_waits(look: collections.abc.Callable[[float, float], "
                "None]) -> None"),
        "Call `look` ten times a second in each thread that waits in a StoreClient. "
        "`look` gets the seconds that the request has waited and its limit in seconds. "
        "If `look` raises an error, the request ends with that error. Call this "
        "function only once.");
  nb::class_<Client> client(
      m, "StoreClient",
      "One connection to a store's server. Every call has a limit in seconds. Threads "
      "may share it; it makes one call at a time.");
  client.def("__init__", &make_client, nb::arg("host"), nb::arg("port"),
             nb::arg("secret"), nb::arg("timeout"), nb::arg("name") = "",
             "Connect to the server. Keep trying until the limit. Errors call the "
             "server `name`, or `host`:`port` if that is empty.");
  client.def_prop_ro("own_address", &Client::own_address,
                     "The address of this process on its way to the server.");
  bind_keys(client);
  bind_many_keys(client);
  bind_queues(client);
  bind_last_wills(m, client);
  bind_meetings(client);
}

}  // namespace allhands::python
