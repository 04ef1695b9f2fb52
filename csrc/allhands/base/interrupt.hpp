// How a wait in the core learns that its caller wants out (Ctrl-C). The core never
// calls Python: whoever starts a call passes a function that looks, and may pass none.
#pragma once

namespace allhands {

// True: stop waiting, an exception is already set in the caller's language.
using Interrupt = bool (*)();

// A wait looks this often; also bounds how late a signal or a dead peer is noticed.
inline constexpr int kInterruptSliceMs = 100;

}  // namespace allhands
