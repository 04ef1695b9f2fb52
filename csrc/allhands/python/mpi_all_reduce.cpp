// The functions of MPI are called at the addresses that they have in the library which
// mpi4py has loaded, so nothing here is compiled against an MPI. Its handles are ints
// or pointers, depending on the library. As an argument either one is the low part of a
// register, so Handle stands for both.
#include "allhands/python/mpi_all_reduce.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>
#include <sched.h>

#include <array>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "allhands/base/error.hpp"
#include "allhands/python/array.hpp"
#include "allhands/python/gil.hpp"
#include "allhands/python/reduction.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace allhands::python {
namespace {

using Handle = std::uintptr_t;
using Iallreduce = int (*)(const void* input, void* output, int count, Handle type,
                           Handle op, Handle comm, void* request);
using Test = int (*)(void* request, int* is_over, void* status);
using Handles = std::vector<std::pair<int, Handle>>;
using Clock = std::chrono::steady_clock;

// Most small arrays are reduced within these tests, in some 20 us. Afterwards ranks
// that share a CPU let each other run, and after a moment signals have to be looked at.
constexpr int kFirstTests = 150;
constexpr auto kMoment = std::chrono::milliseconds(1);
constexpr std::size_t kStatusBytes = 256;  // more than any library's MPI_Status

// Handles by the numbers of what MPI has under them.
template <std::size_t N>
class Table {
 public:
  explicit Table(const Handles& handles) {
    for (const auto& [number, handle] : handles)
      handles_.at(static_cast<std::size_t>(number)) = handle;
  }
  std::optional<Handle> at(std::size_t number) const { return handles_[number]; }

 private:
  std::array<std::optional<Handle>, N> handles_;
};

// The handle of an operation under way, which MPI writes.
class Started {
 public:
  void* at() { return memory_; }
  Handle handle(std::size_t bytes) const {
    if (bytes == sizeof(Handle)) {
      Handle handle;
      std::memcpy(&handle, memory_, sizeof handle);
      return handle;
    }
    unsigned handle;
    std::memcpy(&handle, memory_, sizeof handle);
    return handle;
  }

 private:
  alignas(Handle) std::byte memory_[sizeof(Handle)] = {};
};

// The all-reduce of one communicator.
class MpiAllReduce {
 public:
  MpiAllReduce(std::uintptr_t iallreduce, std::uintptr_t test, Handle in_place,
               Handle comm, std::size_t request_bytes, const Handles& types,
               const Handles& ops, nb::object failed)
      : iallreduce_(reinterpret_cast<Iallreduce>(iallreduce)),
        test_(reinterpret_cast<Test>(test)),
        in_place_(reinterpret_cast<const void*>(in_place)),
        comm_(comm),
        request_bytes_(request_bytes),
        types_(types),
        ops_(ops),
        failed_(std::move(failed)) {}

  nb::object run(nb::handle given, nb::handle given_op) const {
    const auto op = plain_op(given_op);
    const auto its_op = op ? ops_.at(static_cast<std::size_t>(*op)) : std::nullopt;
    if (!its_op) return nb::not_implemented();
    const auto buffer = read_usual(given, Access::Write);
    const auto type =
        buffer ? types_.at(static_cast<std::size_t>(buffer->dtype)) : std::nullopt;
    if (!type || buffer->count == 0 || buffer->count > INT_MAX)
      return nb::not_implemented();
    Started request;
    int is_over = 0;
    if (const int error = carry_out(*buffer, *type, *its_op, request, is_over)) {
      PyErr_SetObject(failed_.ptr(), nb::int_(error).ptr());
      nb::raise_python_error();
    }
    if (is_over != 0) return nb::none();
    return nb::int_(request.handle(request_bytes_));
  }

 private:
  // Returns MPI's error code.
  int carry_out(const Buffer& buffer, Handle type, Handle op, Started& request,
                int& is_over) const {
    const GilReleased unlocked;
    const int error =
        iallreduce_(in_place_, buffer.data, static_cast<int>(buffer.count), type, op,
                    comm_, request.at());
    return error != 0 ? error : wait(request, is_over);
  }

  // Waits a moment for the end.
  int wait(Started& request, int& is_over) const {
    alignas(std::max_align_t) std::byte status[kStatusBytes];
    const auto ends = [&](int* error) {
      *error = test_(request.at(), &is_over, status);
      return *error != 0 || is_over != 0;
    };
    int error = 0;
    for (int i = 0; i < kFirstTests; ++i)
      if (ends(&error)) return error;
    const Clock::time_point end = Clock::now() + kMoment;
    while (!ends(&error) && Clock::now() < end) sched_yield();
    return error;
  }

  Iallreduce iallreduce_;
  Test test_;
  const void* in_place_;
  Handle comm_;
  std::size_t request_bytes_;
  Table<kNumDTypes> types_;
  Table<kNumReduceOps> ops_;
  nb::object failed_;
};

}  // namespace

void bind_mpi_all_reduce(nb::module_& m) {
  nb::class_<MpiAllReduce>(
      m, "MpiAllReduce",
      "MPI's all-reduce in place of a communicator, for usual arrays. The caller lets "
      "only one thread at a time call MPI, if the library needs that.")
      .def(nb::init<std::uintptr_t, std::uintptr_t, Handle, Handle, std::size_t,
                    const Handles&, const Handles&, nb::object>(),
           "iallreduce"_a, "test"_a, "in_place"_a, "comm"_a, "request_bytes"_a,
           "types"_a, "ops"_a, "failed"_a,
           "Args:\n"
           "    iallreduce: the address of MPI_Iallreduce.\n"
           "    test: the address of MPI_Test.\n"
           "    in_place: MPI_IN_PLACE.\n"
           "    comm: the communicator's handle.\n"
           "    request_bytes: the size of MPI_Request.\n"
           "    types: the handles of MPI's types, by the numbers of dtypes.\n"
           "    ops: the handles of MPI's operations, by the numbers of reduce "
           "operations.\n"
           "    failed: the exception's type; it takes MPI's error code.")
      .def("__call__", &MpiAllReduce::run, "array"_a.none(), "op"_a.none(),
           nb::sig("def __call__(self, array: object, op: object) -> int | None"),
           "Reduce `array`, and wait a moment for the end.\n\n"
           "Returns:\n"
           "    None: it is over. A number: the handle of the request that goes on. "
           "NotImplemented: it has not begun, because the array is not usual, or MPI "
           "does not reduce it as this package does.");
}

}  // namespace allhands::python
