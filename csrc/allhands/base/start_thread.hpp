// A new thread, or an Error that says why the system gives none.
#pragma once

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
    throw system_error(ErrorKind::Backend, "starting a thread", error.code().value());
  }
}

}  // namespace allhands
