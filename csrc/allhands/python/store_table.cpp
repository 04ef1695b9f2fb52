// A store's table for Python. Keys are str, values str or bytes. The types are checked
// here, since every store call uses these functions. A call is one step under the GIL,
// so the GIL is the table's lock: threads may share a table, a signal's handler may
// come at any time, and a forked child finds the table consistent.
#include "allhands/python/store_table.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "allhands/base/error.hpp"
#include "allhands/base/wait.hpp"
#include "allhands/python/errors.hpp"
#include "allhands/python/gil.hpp"
#include "allhands/python/time_limits.hpp"
#include "allhands/store/change_count.hpp"
#include "allhands/store/record.hpp"
#include "allhands/store/table.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace allhands::python {
namespace {

using store::Change;
using store::Value;

struct StoreTable {
  store::Table table;
  store::ChangeCount changes;
};

[[noreturn]] void refuse_type(const char* format, nb::handle got) {
  PyErr_Format(PyExc_TypeError, format, got.ptr());
  throw nb::python_error();
}

std::string_view utf8_of(nb::handle text) {
  Py_ssize_t size = 0;
  const char* const data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (data == nullptr) throw nb::python_error();
  return {data, static_cast<std::size_t>(size)};
}

std::string key_of(nb::handle key) {
  if (!PyUnicode_Check(key.ptr()))
    refuse_type("a store's key must be str, got %R", key);
  return std::string(utf8_of(key));
}

std::string_view view_of(nb::handle bytes) {
  return {PyBytes_AS_STRING(bytes.ptr()),
          static_cast<std::size_t>(PyBytes_GET_SIZE(bytes.ptr()))};
}

std::string value_of(nb::handle value) {
  if (PyBytes_Check(value.ptr())) return std::string(view_of(value));
  if (PyUnicode_Check(value.ptr())) return std::string(utf8_of(value));
  if (!PyByteArray_Check(value.ptr()) && !PyMemoryView_Check(value.ptr()))
    refuse_type("a store's value must be str or bytes, got %R", value);
  const nb::object bytes = nb::steal(PyBytes_FromObject(value.ptr()));
  if (!bytes.is_valid()) throw nb::python_error();
  return std::string(view_of(bytes));
}

// From a list of str.
std::vector<std::string> keys_of(const nb::list& list) {
  std::vector<std::string> keys;
  keys.reserve(list.size());
  for (const nb::handle key : list) keys.push_back(key_of(key));
  return keys;
}

std::int64_t amount_of(nb::handle amount) {
  const nb::object number = nb::steal(PyNumber_Index(amount.ptr()));
  if (!number.is_valid()) {
    PyErr_Clear();
    refuse_type("add: amount must be an int64, got %R", amount);
  }
  int overflow = 0;
  const std::int64_t value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow != 0) refuse_type("add: amount must be an int64, got %R", number);
  return value;
}

nb::object new_bytes(std::string_view text) {
  const auto size = static_cast<Py_ssize_t>(text.size());
  nb::object bytes = nb::steal(PyBytes_FromStringAndSize(text.data(), size));
  if (!bytes.is_valid()) throw nb::python_error();
  return bytes;
}

nb::object bytes_or_none(const Value& value) {
  return value == nullptr ? nb::none() : new_bytes(*value);
}

nb::object to_text(const std::string& utf8) {
  return nb::str(utf8.data(), utf8.size());
}

bool contains_all(const StoreTable& self, const nb::list& keys) {
  bool are_there = true;
  // Checks all of them, so that an invalid key is refused.
  for (const nb::handle key : keys) are_there &= self.table.contains(key_of(key));
  return are_there;
}

nb::object values_of(const StoreTable& self, const nb::list& keys) {
  std::vector<Value> found;
  for (const std::string& key : keys_of(keys)) {
    found.push_back(self.table.find(key));
    if (found.back() == nullptr) return nb::none();
  }
  nb::list values;
  for (const Value& value : found) values.append(new_bytes(*value));
  return values;
}

// Sets all of them or, if one is no valid value, none.
void set_all(StoreTable& self, const nb::list& keys, const nb::list& values) {
  const std::vector<std::string> names = keys_of(keys);
  std::vector<std::string> contents;
  contents.reserve(values.size());
  for (const nb::handle value : values) contents.push_back(value_of(value));
  if (names.size() != contents.size())
    throw Error(ErrorKind::Value, "multi_set: " + std::to_string(names.size()) +
                                      " keys but " + std::to_string(contents.size()) +
                                      " values");
  for (std::size_t i = 0; i < names.size(); ++i)
    self.table.set(names[i], std::move(contents[i]));
  self.changes.increase();
}

nb::object take_records(StoreTable& self) {
  std::string records;
  for (const auto& [kind, key, value] : self.table.take_changes())
    store::append_record(records, {static_cast<std::uint8_t>(kind), key, value});
  return new_bytes(records);
}

bool repeat(StoreTable& self, int kind, nb::handle key, nb::handle value) {
  if (kind < static_cast<int>(Change::Kind::Set) ||
      kind > static_cast<int>(Change::Kind::Pop))
    return false;
  self.table.repeat({static_cast<Change::Kind>(kind), key_of(key), value_of(value)});
  self.changes.increase();
  return true;
}

void bind_values(nb::class_<StoreTable>& table) {
  table
      .def(
          "set",
          [](StoreTable& self, nb::handle key, nb::handle value) {
            self.table.set(key_of(key), value_of(value));
            self.changes.increase();
          },
          nb::arg().none(), nb::arg().none(),
          nb::sig("def set(self, key: str, value: str | bytes) -> None"))
      .def(
          "find",
          [](const StoreTable& self, nb::handle key) {
            return bytes_or_none(self.table.find(key_of(key)));
          },
          nb::arg().none(), nb::sig("def find(self, key: str) -> bytes | None"),
          "Return the value of `key`; None if it is missing.")
      .def(
          "add",
          [](StoreTable& self, nb::handle key, nb::handle amount) {
            const std::int64_t sum = self.table.add(key_of(key), amount_of(amount));
            self.changes.increase();
            return sum;
          },
          nb::arg().none(), nb::arg().none(),
          nb::sig("def add(self, key: str, amount: int) -> int"))
      .def(
          "append",
          [](StoreTable& self, nb::handle key, nb::handle value) {
            self.table.append(key_of(key), value_of(value));
            self.changes.increase();
          },
          nb::arg().none(), nb::arg().none(),
          nb::sig("def append(self, key: str, value: str | bytes) -> None"))
      .def(
          "compare_set",
          [](StoreTable& self, nb::handle key, nb::handle expected,
             nb::handle desired) {
            const Value after = self.table.compare_set(key_of(key), value_of(expected),
                                                       value_of(desired));
            self.changes.increase();
            return bytes_or_none(after);
          },
          nb::arg().none(), nb::arg().none(), nb::arg().none(),
          nb::sig("def compare_set(self, key: str, expected: str | bytes, "
                  "desired: str | bytes) -> bytes"))
      .def(
          "delete_key",
          [](StoreTable& self, nb::handle key) {
            return self.table.erase(key_of(key));
          },
          nb::arg().none(), nb::sig("def delete_key(self, key: str) -> bool"));
}

void bind_many_values(nb::class_<StoreTable>& table) {
  table
      .def("contains_all", &contains_all,
           nb::sig("def contains_all(self, keys: list[str]) -> bool"),
           "Return whether every key has a value or a queue.")
      .def("find_all", &values_of,
           nb::sig("def find_all(self, keys: list[str]) -> list[bytes] | None"),
           "Return the values of all keys; None if one is missing.")
      .def("set_all", &set_all,
           nb::sig("def set_all(self, keys: list[str], values: list[str | bytes]) -> "
                   "None"))
      .def("num_keys", [](const StoreTable& self) { return self.table.num_keys(); })
      .def(
          "list_keys",
          [](const StoreTable& self) {
            nb::list keys;
            for (const std::string& key : self.table.keys()) keys.append(to_text(key));
            return keys;
          },
          nb::sig("def list_keys(self) -> list[str]"));
}

void bind_queues(nb::class_<StoreTable>& table) {
  table
      .def(
          "push",
          [](StoreTable& self, nb::handle key, nb::handle value) {
            self.table.push(key_of(key), value_of(value));
            self.changes.increase();
          },
          nb::arg().none(), nb::arg().none(),
          nb::sig("def push(self, key: str, value: str | bytes) -> None"))
      .def(
          "pop",
          [](StoreTable& self, nb::handle key) {
            return bytes_or_none(self.table.pop(key_of(key)));
          },
          nb::arg().none(), nb::sig("def pop(self, key: str) -> bytes | None"),
          "Remove the oldest value of the queue `key` and return it; None if there is "
          "none.")
      .def(
          "queue_length",
          [](const StoreTable& self, nb::handle key) {
            return self.table.queue_length(key_of(key));
          },
          nb::arg().none(), nb::sig("def queue_length(self, key: str) -> int"));
}

void bind_changes(nb::class_<StoreTable>& table) {
  table
      .def_prop_ro(
          "num_changes", [](const StoreTable& self) { return self.changes.now(); },
          "Return how often a value came or was replaced.")
      .def(
          "await_change",
          [](StoreTable& self, std::uint32_t seen, double timeout) {
            const Limits limits{Deadline::after(duration_of(timeout)),
                                &python_interrupt};
            const GilReleased no_gil;
            return self.changes.wait_beyond(seen, limits);
          },
          "seen"_a, "timeout"_a,
          "Wait until `num_changes` differs from `seen`. Return False after `timeout` "
          "seconds.")
      .def(
          "note_changes", [](StoreTable& self) { self.table.note_changes(); },
          "Keep every later change for `take_records`.")
      .def("take_records", &take_records, nb::sig("def take_records(self) -> bytes"),
           "Return records of the changes since the last call.\n\n"
           "Raises:\n"
           "    ValueError: a key or a value is too long.")
      .def("repeat", &repeat,
           nb::sig("def repeat(self, kind: int, key: str, value: bytes) -> bool"),
           "Make the change of a record. Return False if its kind is unknown.")
      .def(
          "clear", [](StoreTable& self) { self.table.clear(); },
          "Forget everything, also the changes.");
}

}  // namespace

void bind_store_table(nb::module_& m) {
  nb::class_<StoreTable> table(
      m, "StoreTable",
      "Values and queues by key. Threads may share it. allhands.Store describes the "
      "functions. Only `await_change` waits.");
  table.def(nb::init<>());
  bind_values(table);
  bind_many_values(table);
  bind_queues(table);
  bind_changes(table);
}

}  // namespace allhands::python
