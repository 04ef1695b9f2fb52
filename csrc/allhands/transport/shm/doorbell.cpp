#include "allhands/transport/shm/doorbell.hpp"

#include "allhands/base/futex.hpp"

namespace allhands {

void Doorbell::ring() {
  // Sequentially consistent with the waiter, which counts itself and then re-reads the
  // count:
  // either the waiter sees the new count or this sees that somebody waits.
  count.fetch_add(1, std::memory_order_seq_cst);
  if (waiters.load(std::memory_order_seq_cst) != 0) futex_wake_all(count);
}

}  // namespace allhands
