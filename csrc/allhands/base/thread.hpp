// Threads of the core, which may be refused.
#pragma once

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "allhands/base/error.hpp"

namespace allhands {

// A thread that `purpose`, such as "moves messages". Throws Backend where the system
// has none for this process.
template <class Body>
std::thread start_thread(const std::string& purpose, Body body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    throw Error(ErrorKind::Backend,
                "the thread that " + purpose + " cannot be started: " + error.what() +
                    "; has the process or its user reached a limit of threads (ulimit "
                    "-u) or of memory (ulimit -v)?");
  }
}

}  // namespace allhands
