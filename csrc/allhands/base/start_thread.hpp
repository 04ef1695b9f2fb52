// A new thread, or an Error that says why the system gives none.
#pragma once

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "allhands/base/error.hpp"

namespace allhands {

template <class Body>
std::thread start_thread(Body body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    throw Error(ErrorKind::Backend,
                std::string("starting a thread: ") + error.what() +
                    "; has the process or its user reached a limit of threads (ulimit "
                    "-u) or of memory (ulimit -v)?");
  }
}

}  // namespace allhands
