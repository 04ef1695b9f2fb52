#include "allhands/python/array.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <string>

#include "allhands/base/error.hpp"
#include "allhands/python/buffer.hpp"
#include "allhands/python/imported.hpp"
#include "allhands/python/numpy_array.hpp"
#include "allhands/python/tensor.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace allhands::python {
namespace {

nb::object as_buffer(nb::handle array, Access access, const char* name) {
  static PyObject* const function = imported("allhands.arrays", "as_buffer");
  return nb::handle(function)(array, "writable"_a = access == Access::Write,
                              "name"_a = name);
}

}  // namespace

std::optional<Buffer> read_usual(nb::handle array, Access access) {
  PyTypeObject* const type = Py_TYPE(array.ptr());
  if (type == numpy_array_type()) {
    auto buffer = read_numpy(array, access == Access::Write);
    return buffer && buffer->is_contiguous() ? std::move(buffer) : std::nullopt;
  }
  return read_tensor(array);
}

nb::tuple items_of(nb::handle list, const char* name) {
  if (PyList_Check(list.ptr())) {
    nb::object items = nb::steal(PyList_AsTuple(list.ptr()));
    if (!items.is_valid()) nb::raise_python_error();  // out of memory
    return nb::borrow<nb::tuple>(items);
  }
  throw Error(ErrorKind::Type,
              "Invalid function argument. Expected parameter `" + std::string(name) +
                  "` of type list of arrays, but got " +
                  nb::cast<std::string>(nb::str(list.type())) + " instead.");
}

Array::Array(nb::handle array, Access access, const char* name)
    : given_(array), owner_(array) {
  if (auto buffer = read_usual(array, access)) {
    buffer_ = std::move(*buffer);
    return;
  }
  made_ = as_buffer(array, access, name);
  owner_ = made_;
  buffer_ = nb::cast<const PyBuffer&>(made_).buffer();
}

nb::list Array::listed() const {
  nb::list list;
  list.append(given_);
  return list;
}

// Another thread may change the list, so its items are kept.
Arrays::Arrays(nb::handle list, Access access, const char* name)
    : given_(nb::borrow(list)), owners_(items_of(list, name)) {
  buffers_.reserve(owners_.size());
  std::vector<nb::object> made;  // of unusual arrays
  for (const nb::handle item : owners_) {
    const Array array(item, access, name);
    buffers_.push_back(array.buffer());
    if (!array.owner().is(item)) made.push_back(array.owner());
  }
  if (made.empty()) return;
  nb::list all(owners_);
  for (const nb::object& object : made) all.append(object);
  owners_ = nb::tuple(all);
}

void bind_array(nb::module_& m) {
  m.def(
      "usual_dtype",
      [](nb::handle array) -> std::optional<DType> {
        const auto buffer = read_usual(array, Access::Write);
        return buffer ? std::optional(buffer->dtype) : std::nullopt;
      },
      "array"_a.none(), nb::sig("def usual_dtype(array: object) -> DType | None"),
      "Return the dtype of a writable, contiguous array in CPU memory; None for any "
      "other object, and for arrays whose memory has to be looked at more closely.");
}

}  // namespace allhands::python
