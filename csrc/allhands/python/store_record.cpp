#include "allhands/python/store_record.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "allhands/store/record.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace allhands::python {
namespace {

using store::Record;

std::string_view from(const nb::bytes& data, std::size_t offset) {
  const std::string_view all(static_cast<const char*>(data.data()), data.size());
  return all.substr(offset);
}

nb::bytes encode(std::uint8_t kind, std::string_view key, const nb::bytes& value) {
  std::string data;
  store::append_record(data, {kind, key, from(value, 0)});
  return nb::bytes(data.data(), data.size());
}

std::optional<std::size_t> size_at(const nb::bytes& data, std::size_t offset) {
  return store::record_size(from(data, offset));
}

nb::object decode(const nb::bytes& data, std::size_t offset, std::size_t num_bytes) {
  const auto record = store::read_record(from(data, offset).substr(0, num_bytes));
  if (!record) return nb::none();
  const auto key_size = static_cast<Py_ssize_t>(record->key.size());
  const nb::object key =
      nb::steal(PyUnicode_DecodeUTF8(record->key.data(), key_size, nullptr));
  if (key.is_valid())
    return nb::make_tuple(record->kind, key,
                          nb::bytes(record->value.data(), record->value.size()));
  if (PyErr_ExceptionMatches(PyExc_UnicodeDecodeError) == 0) throw nb::python_error();
  PyErr_Clear();
  return nb::none();
}

}  // namespace

void bind_store_record(nb::module_& m) {
  m.def("encode_store_record", &encode, "kind"_a, "key"_a, "value"_a,
        "Return a record for the file of a FileStore.\n\n"
        "Raises:\n"
        "    ValueError: the key or the value is too long.");
  m.def("store_record_size", &size_at, "data"_a, "offset"_a,
        "Return the number of bytes of the record at `offset`. If its head is cut, "
        "return the number of bytes of the head. None means that no record can begin "
        "so.");
  m.def("decode_store_record", &decode, "data"_a, "offset"_a, "num_bytes"_a,
        nb::sig("def decode_store_record(data: bytes, offset: int, num_bytes: int) -> "
                "tuple[int, str, bytes] | None"),
        "Return the kind, key and value of a complete record; None if it is damaged.");
}

}  // namespace allhands::python
