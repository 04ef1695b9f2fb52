// Starts a thread, or throws an Error that says why the system gives none.
#pragma once

#include <signal.h>

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

// While it lives, a thread that is started blocks all signals, which are for the
// program's own threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

// Starts a thread of the package's own, which blocks all signals.
template <class Body>
std::thread start_quiet_thread(Body body) {
  const SignalsBlocked blocked;
  return start_thread(std::move(body));
}

}  // namespace allhands
