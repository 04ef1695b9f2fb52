// The one exception type of the core. The Python binding turns its kind into a class of
// allhands.errors, which says what each kind means.
#pragma once

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace allhands {

// The kind of an error, which decides the class of the exception in Python.
enum class ErrorKind {
  Value,        // the caller's mistake: ValueError
  Type,         // the caller's mistake: TypeError
  Unsupported,  // the caller's mistake: RuntimeError
  Backend,      // DistBackendError
  Network,      // DistNetworkError
  Store,        // DistStoreError
  QueueEmpty,   // QueueEmptyError
  RankFailed,   // RankFailedError; `ranks` are the dead ones
  Mismatch,     // CollectiveMismatchError; `ranks` are those that differ from this one
  Timeout,      // CollectiveTimeoutError; `ranks` are those that had not arrived
  Interrupted,  // a Python signal handler raised; the binding passes that exception on
};

// What a rank tells of the exception that ended its program. The core passes the text
// on and does not interpret it; see src/allhands/backends/remote_exception.py.
struct RemoteException {
  static constexpr std::size_t kMaxBytes = std::size_t{16} << 10;

  int rank;  // of the group
  std::string text;
};

// The exception that every function of the core throws.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message, std::vector<int> ranks = {})
      : std::runtime_error(message), kind_(kind), ranks_(std::move(ranks)) {}

  ErrorKind kind() const { return kind_; }
  const std::vector<int>& ranks() const { return ranks_; }

  // The remote exception that caused this error, if a rank told one; else null.
  const RemoteException* cause() const { return cause_.get(); }
  void set_cause(RemoteException cause) {
    cause_ = std::make_shared<const RemoteException>(std::move(cause));
  }

  // The same error in other words, or as another kind.
  Error retold(const std::string& message) const { return retold(kind_, message); }
  Error retold(ErrorKind kind, const std::string& message) const {
    Error other(kind, message, ranks_);
    other.cause_ = cause_;
    return other;
  }

 private:
  ErrorKind kind_;
  std::vector<int> ranks_;
  std::shared_ptr<const RemoteException> cause_;
};

// What strerror says of `code`. If a limit of this process was reached, also the limit
// and how to raise it.
std::string errno_text(int code);

// Error(kind, "text: " + errno_text(code)) for a failed system call.
Error system_error(ErrorKind kind, const std::string& what, int code);

}  // namespace allhands
