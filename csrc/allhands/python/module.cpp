// The table of contents of allhands._C. Bindings contain no logic: they convert
// arguments, release the GIL and translate errors. Each area of the core has one file
// here.
#include <nanobind/nanobind.h>

#include "allhands/base/standard_streams.hpp"
#include "allhands/python/array.hpp"
#include "allhands/python/buffer.hpp"
#include "allhands/python/checked_call.hpp"
#include "allhands/python/communicator.hpp"
#include "allhands/python/errors.hpp"
#include "allhands/python/exported_array.hpp"
#include "allhands/python/finalizer.hpp"
#include "allhands/python/flight.hpp"
#include "allhands/python/interfaces.hpp"
#include "allhands/python/mpi_all_reduce.hpp"
#include "allhands/python/port.hpp"
#include "allhands/python/request.hpp"
#include "allhands/python/sparse.hpp"
#include "allhands/python/store.hpp"
#include "allhands/python/store_file.hpp"
#include "allhands/python/store_record.hpp"
#include "allhands/python/store_table.hpp"
#include "allhands/python/tensor.hpp"
#include "allhands/python/tuning.hpp"
#include "allhands/python/ways.hpp"
#include "allhands/python/work.hpp"

namespace nb = nanobind;

NB_MODULE(_C, m) {
  m.doc() =
      "The native core of allhands. Private: use the names that allhands exports.";
  // Call before anything here opens a descriptor.
  allhands::hold_standard_streams();
  // A program may still hold a group at exit; that needs no warning.
  nb::set_leak_warnings(false);
  allhands::python::bind_errors(m);
  allhands::python::bind_finalizer(m);
  allhands::python::bind_exported_array(m);
  allhands::python::bind_buffer(m);
  allhands::python::bind_array(m);
  allhands::python::bind_checked_call(m);
  allhands::python::bind_tensor(m);
  allhands::python::bind_mpi_all_reduce(m);
  allhands::python::bind_work(m);
  allhands::python::bind_request(m);
  allhands::python::bind_sparse_array(m);
  allhands::python::bind_port(m);
  allhands::python::bind_flight_memory(m);
  allhands::python::bind_communicator(m);
  allhands::python::bind_store(m);
  allhands::python::bind_store_file(m);
  allhands::python::bind_store_record(m);
  allhands::python::bind_store_table(m);
  allhands::python::bind_interfaces(m);
  allhands::python::bind_tuning(m);
  allhands::python::bind_ways(m);
}
