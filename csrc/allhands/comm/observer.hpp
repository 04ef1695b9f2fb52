// What watches the operations of a group. It sees each operation once, whether that
// runs at once or later: collectives, shared arrays, and messages, each by itself.
//
// A call that is refused before it has begun anything is not an operation: one with bad
// arguments, or on a group that cannot be opened or is broken.
#pragma once

#include <cstdint>
#include <exception>
#include <string_view>

#include "allhands/base/dtype.hpp"
#include "allhands/engine/transfer.hpp"
#include "allhands/engine/work.hpp"

namespace allhands {

// What there is to know of an operation when it is issued.
struct OperationRecord {
  std::string_view group;
  std::string_view op;         // "all_reduce", ..., "send", "recv"
  std::uint64_t sequence = 0;  // of a message, which has none, 0
  DType dtype = DType::UInt8;
  std::uint64_t count = 0;  // elements, as ranks agree on them
  int root = -1;            // -1: none
  int peer = -1;            // of a message; -1: any source
  std::int64_t tag = 0;
  bool is_async = false;
};

// Is told of each operation of a group. Thread-safe, as operations are issued and end
// in several threads; must not use the group.
class Observer {
 public:
  virtual ~Observer() = default;
  // Called in the thread that issues the operation: before the operation begins, and
  // for an asynchronous one before the call returns. The result is passed to `after`.
  virtual std::uint64_t before(const OperationRecord& operation) noexcept = 0;
  // Called in the thread that ended the operation. `error` is null if it succeeded.
  virtual void after(std::uint64_t token, std::exception_ptr error) noexcept = 0;
};

// Runs `body` as the operation of which `observer` is told.
template <class Body>
void observe_run(Observer& observer, const OperationRecord& record, Body body) {
  const std::uint64_t token = observer.before(record);
  try {
    body();
  } catch (...) {
    observer.after(token, std::current_exception());
    throw;
  }
  observer.after(token, nullptr);
}

// Tells `observer` once `work` has ended.
void observe_end(Observer& observer, std::uint64_t token, Work& work);

// Tells `observer` likewise once the transfer that `post` returns has ended.
template <class Post>
TransferPtr observe_post(Observer& observer, const OperationRecord& record, Post post) {
  const std::uint64_t token = observer.before(record);
  TransferPtr transfer;
  try {
    transfer = post();
  } catch (...) {
    observer.after(token, std::current_exception());
    throw;
  }
  observe_end(observer, token, transfer->work);
  return transfer;
}

}  // namespace allhands
