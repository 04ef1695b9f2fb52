#include "allhands/python/store_file.hpp"

#include <cerrno>

#include "allhands/python/gil.hpp"
#include "allhands/store/file_lock.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace allhands::python {
namespace {

using store::LockedByte;
using store::LockKind;

[[noreturn]] void raise_os_error(int code) {
  errno = code;
  PyErr_SetFromErrno(PyExc_OSError);
  throw nb::python_error();
}

void set_lock(int file, LockedByte byte, LockKind kind) {
  int code = 0;
  {
    const GilReleased no_gil;  // a file server may be slow
    code = store::set_file_lock(file, byte, kind);
  }
  if (code != 0) raise_os_error(code);
}

off_t lock(int file) {
  int code = 0;
  off_t end = 0;
  {
    const GilReleased no_gil;
    code = store::set_file_lock(file, LockedByte::Mutex, LockKind::Exclusive);
    if (code == 0) end = store::find_file_end(file);
    if (end < 0) code = errno;
  }
  if (code != 0) raise_os_error(code);
  return end;
}

}  // namespace

void bind_store_file(nb::module_& m) {
  m.def("lock_store_file", &lock, "file"_a,
        "Lock the file against its other users until `unlock_store_file`. Return its "
        "length.\n\n"
        "Raises:\n"
        "    OSError: EAGAIN or EACCES if another user holds the lock.");
  m.def(
      "unlock_store_file",
      [](int file) { set_lock(file, LockedByte::Mutex, LockKind::None); }, "file"_a,
      "Release the lock, if this process holds it.");
  m.def(
      "mark_store_file",
      [](int file, bool alone) {
        set_lock(file, LockedByte::Presence,
                 alone ? LockKind::Exclusive : LockKind::Shared);
      },
      "file"_a, "alone"_a,
      "Show other processes that this one uses the file, until the file is closed.\n\n"
      "Raises:\n"
      "    OSError: EAGAIN or EACCES if this process asks to be alone and is not.");
}

}  // namespace allhands::python
