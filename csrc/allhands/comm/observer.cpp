#include "allhands/comm/observer.hpp"

#include <new>

namespace allhands {

void observe_end(Observer& observer, std::uint64_t token, Work& work) {
  try {
    // Callbacks run while the Work is there.
    work.on_done([&observer, token, &work] { observer.after(token, work.outcome()); });
  } catch (const std::bad_alloc&) {
    observer.after(token, std::current_exception());  // it goes on unseen
  }
}

}  // namespace allhands
