// The floating-point environment of a thread during reductions.
//
// A thread may flush subnormals to zero (through torch.set_flush_denormal or libraries
// built with -ffast-math, also in threads that it starts), round upwards, or have traps
// enabled. What a rank reduces goes to other ranks, so all of them compute as IEEE 754
// says: they round to nearest even, keep subnormals, and have no traps. Reading the
// environment takes 2 ns, writing it ten times as long, so it is written only if it
// differs.
#pragma once

#include <cstdint>
#if defined(__x86_64__)
#include <xmmintrin.h>
#elif !defined(__aarch64__)
#include <cfenv>
#endif

namespace allhands {

// Sets the default environment of the calling thread, and restores the previous one at
// the end.
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() : before_(read()) {
    if (!is_default(before_)) write(kDefault);
  }
  ~DefaultFloatEnvironment() {
    if (!is_default(before_)) write(before_);
  }
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
#if defined(__x86_64__)
  using Control = std::uint32_t;  // MXCSR
  static constexpr Control kDefault = 0x1f80, kHasHappened = 0x3f;
  static Control read() { return _mm_getcsr(); }
  static void write(Control control) { _mm_setcsr(control); }
  static bool is_default(Control control) {
    return (control & ~kHasHappened) == kDefault;
  }
#elif defined(__aarch64__)
  using Control = std::uint64_t;  // FPCR
  static constexpr Control kDefault = 0;
  static Control read() {
    Control control;
    asm volatile("mrs %0, fpcr" : "=r"(control));
    return control;
  }
  static void write(Control control) { asm volatile("msr fpcr, %0" ::"r"(control)); }
  static bool is_default(Control control) { return control == kDefault; }
#else
  using Control = int;  // the rounding mode, which is all that C++ knows
  static constexpr Control kDefault = FE_TONEAREST;
  static Control read() { return std::fegetround(); }
  static void write(Control control) { std::fesetround(control); }
  static bool is_default(Control control) { return control == kDefault; }
#endif

  const Control before_;
};

}  // namespace allhands
