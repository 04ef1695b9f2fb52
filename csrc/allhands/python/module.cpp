// The table of contents of allhands._C. Bindings hold no logic: arguments in, GIL off,
// errors out. One file here per area of the core.
#include <nanobind/nanobind.h>

#include "allhands/python/errors.hpp"

namespace nb = nanobind;

NB_MODULE(_C, m) {
  m.doc() =
      "The native core of allhands. Private: use the names that allhands exports.";
  allhands::python::bind_errors(m);
}
