#include "allhands/python/held_arrays.hpp"

#include <algorithm>
#include <optional>

#include "allhands/python/buffer.hpp"
#include "allhands/python/numpy_array.hpp"
#include "allhands/python/tensor.hpp"

namespace nb = nanobind;

namespace allhands::python {
namespace {

std::optional<ArrayMemory> memory_of(nb::handle array) {
  if (const auto memory = memory_of_numpy(array)) return memory;
  return memory_of_tensor(array);
}

}  // namespace

void HeldArrays::add(nb::handle arrays) {
  if (PyTuple_Check(arrays.ptr()) || PyList_Check(arrays.ptr())) {
    for (const nb::handle each : arrays) add(each);
  } else if (nb::isinstance<PyBuffer>(arrays)) {
    add(nb::cast<const PyBuffer&>(arrays).owner());
  } else if (const auto memory = memory_of(arrays)) {
    held_.push_back({arrays, *memory});
  }
}

bool HeldArrays::are_unchanged() const {
  return std::ranges::all_of(held_, [](const Held& held) {
    const auto now = memory_of(held.array);
    return now && now->data == held.memory.data && now->bytes >= held.memory.bytes;
  });
}

}  // namespace allhands::python
