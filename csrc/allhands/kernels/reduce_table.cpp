#include "allhands/kernels/reduce_table.hpp"

namespace allhands {
namespace {

struct Runnable {
  const ReduceTable* tables[4] = {};
};

Runnable find_runnable() {
  Runnable runnable;
  const ReduceTable** next = runnable.tables;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
    *next++ = &kAvx512Reduce;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c"))
    *next++ = &kAvx2Reduce;
#endif
  *next = &kPortableReduce;
  return runnable;
}

}  // namespace

const ReduceTable* const* runnable_reduce_tables() {
  static const Runnable runnable = find_runnable();
  return runnable.tables;
}

}  // namespace allhands
