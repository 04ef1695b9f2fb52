// What broke a group, as this rank knows it: the first failure that it saw, its own or
// one that it was told of. A group that is broken stays broken. Thread-safe.
#pragma once

#include <mutex>
#include <optional>

#include "allhands/base/error.hpp"

namespace allhands {

class FailureRecord {
 public:
  // Keeps `error`, unless one is kept already.
  void note(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
  }
  std::optional<Error> error() const {
    const std::lock_guard lock(mutex_);
    return error_;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<Error> error_;
};

}  // namespace allhands
