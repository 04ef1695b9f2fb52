#include "allhands/net/unforked_fd.hpp"

#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <set>

namespace allhands {
namespace {

// The descriptors that a child must close. A fork waits for threads that change the
// list.
class OpenOnes {
 public:
  OpenOnes() {
    ::pthread_atfork([] { all().mutex_.lock(); }, [] { all().mutex_.unlock(); },
                     [] { all().close(); });
  }

  // The object outlives all its users.
  static OpenOnes& all() {
    static auto* const ones = new OpenOnes;
    return *ones;
  }

  void add(int fd) {
    const std::lock_guard lock(mutex_);
    fds_.insert(fd);
  }
  void remove(int fd) {
    const std::lock_guard lock(mutex_);
    fds_.erase(fd);
  }

 private:
  // The child's copies of the owners are never used or destroyed.
  void close() {
    for (const int fd : fds_) ::close(fd);
    fds_.clear();
    mutex_.unlock();
  }

  std::mutex mutex_;
  std::set<int> fds_;
};

}  // namespace

UnforkedFd::UnforkedFd(Fd fd) : fd_(std::move(fd)) {
  if (fd_.is_open()) OpenOnes::all().add(fd_.get());
}

UnforkedFd& UnforkedFd::operator=(UnforkedFd&& other) noexcept {
  if (this == &other) return *this;
  reset();
  fd_ = std::move(other.fd_);
  return *this;
}

void UnforkedFd::reset() {
  if (!fd_.is_open()) return;
  OpenOnes::all().remove(fd_.get());
  fd_.reset();
}

}  // namespace allhands
