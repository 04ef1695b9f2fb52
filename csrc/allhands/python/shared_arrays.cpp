// Arrays in memory that ranks share, for Python.
#include <nanobind/stl/vector.h>

#include <memory>
#include <utility>
#include <vector>

#include "allhands/python/buffer.hpp"
#include "allhands/python/communicator.hpp"
#include "allhands/python/errors.hpp"
#include "allhands/python/exported_array.hpp"
#include "allhands/python/gil.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace allhands::python {
namespace {

using Self = PyCommunicator&;

// This rank's bytes of a new shared array.
nb::object shared_bytes(Self self, DType dtype, const std::vector<std::size_t>& shape,
                        nb::handle timeout) {
  std::shared_ptr<SharedArray> array;
  const Limits limits = {Deadline::after(self.limit(timeout, "empty_shared")),
                         python_interrupt};
  {
    const GilReleased unlocked;
    array = self.core().empty_shared(dtype, shape, limits);
  }
  void* const data = array->data();
  const std::size_t num_bytes = array->num_bytes();
  return export_bytes(data, num_bytes, std::move(array));
}

// The bytes of `peer` that correspond to `buffer`; they keep `buffer` alive.
nb::object peer_bytes(Self self, nb::handle buffer, int peer) {
  const Buffer& mine = nb::cast<const PyBuffer&>(buffer).buffer();
  Communicator& core = self.core();
  std::byte* data = nullptr;
  {
    const GilReleased unlocked;
    data = core.peer_data(mine, peer);
  }
  return export_bytes(data, mine.num_bytes(), as_owner(buffer));
}

}  // namespace

void bind_shared_arrays(CommunicatorClass& c) {
  c.def("shared_bytes", &shared_bytes, "dtype"_a, "shape"_a, "timeout"_a.none(),
        nb::sig("def shared_bytes(self, dtype: DType, shape: "
                "collections.abc.Sequence[int], timeout: datetime.timedelta | None) "
                "-> numpy.typing.NDArray[numpy.uint8]"),
        "Make an array in memory that all ranks share; return this rank's bytes, which "
        "are zero. All ranks call it.")
      .def("peer_bytes", &peer_bytes, "buffer"_a, "peer"_a,
           nb::sig("def peer_bytes(self, buffer: Buffer, peer: int) -> "
                   "numpy.typing.NDArray[numpy.uint8]"),
           "Return the bytes of rank `peer` at the place of `buffer` in a shared array "
           "of this rank. They keep `buffer` alive.");
}

}  // namespace allhands::python
