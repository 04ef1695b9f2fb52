// Arrays in memory that ranks share, for Python.
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "allhands/python/buffer.hpp"
#include "allhands/python/communicator.hpp"
#include "allhands/python/errors.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace allhands::python {
namespace {

using Self = PyCommunicator&;
using Bytes = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>;

// This rank's bytes of a new shared array.
Bytes shared_bytes(Self self, DType dtype, const std::vector<std::size_t>& shape,
                   nb::handle timeout) {
  std::shared_ptr<SharedArray> array;
  const Limits limits = {Deadline::after(self.limit(timeout)), python_interrupt};
  {
    const nb::gil_scoped_release unlocked;
    array = self.core().empty_shared(dtype, shape, limits);
  }
  using Pointer = std::shared_ptr<SharedArray>;
  const nb::capsule owner(new Pointer(array), [](void* pointer) noexcept {
    delete static_cast<Pointer*>(pointer);
  });
  return Bytes(array->data(), {array->num_bytes()}, owner);
}

// The bytes of `peer`'s that `buffer` are here; they keep `buffer`.
Bytes peer_bytes(Self self, nb::handle buffer, int peer) {
  const Buffer& mine = nb::cast<const PyBuffer&>(buffer).buffer();
  Communicator& core = self.core();
  std::byte* data = nullptr;
  {
    const nb::gil_scoped_release unlocked;
    data = core.peer_data(mine, peer);
  }
  return Bytes(data, {mine.num_bytes()}, buffer);
}

}  // namespace

void bind_shared_arrays(CommunicatorClass& c) {
  c.def("shared_bytes", &shared_bytes, "dtype"_a, "shape"_a, "timeout"_a.none(),
        nb::sig("def shared_bytes(self, dtype: DType, shape: "
                "collections.abc.Sequence[int], timeout: datetime.timedelta | None) "
                "-> numpy.typing.NDArray[numpy.uint8]"),
        "Collective: this rank's bytes of a new array in memory that all ranks share, "
        "zero at first.")
      .def("peer_bytes", &peer_bytes, "buffer"_a, "peer"_a,
           "The bytes of rank `peer` that are where `buffer` is in a shared array of "
           "this rank; they keep `buffer` alive.");
}

}  // namespace allhands::python
