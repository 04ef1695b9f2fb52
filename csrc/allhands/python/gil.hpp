// Gil: guards of Python's global interpreter lock that outlive the interpreter.
//
// A daemon thread may be in the core when Python ends. As it takes the lock again,
// Python (before 3.14) ends it by pthread_exit, which unwinds its stack: out of a
// destructor, or through a function that is noexcept, this aborts the process. These
// guards stop the thread there instead, until the process has ended. What it holds
// stays held until then.
#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

namespace allhands::python {

// Calls the C API, which may take the lock. Returns unless Python ends the thread.
template <class Call>
auto unless_ended(Call call) {
  try {
    return call();
  } catch (abi::__forced_unwind&) {
    for (;;) pause();
  }
}

// Without the lock, which this thread holds.
class GilReleased {
 public:
  GilReleased() : state_(PyEval_SaveThread()) {}
  ~GilReleased() {
    unless_ended([&] { PyEval_RestoreThread(state_); });
  }
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  PyThreadState* state_;
};

// With the lock, from any thread.
class GilHeld {
 public:
  GilHeld() : state_(unless_ended(PyGILState_Ensure)) {}
  ~GilHeld() { PyGILState_Release(state_); }
  GilHeld(const GilHeld&) = delete;
  GilHeld& operator=(const GilHeld&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace allhands::python
