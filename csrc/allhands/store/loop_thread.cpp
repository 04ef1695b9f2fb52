#include "allhands/store/loop_thread.hpp"

#include <unistd.h>

#include <utility>

#include "allhands/base/start_thread.hpp"

namespace allhands::store {

LoopThread::LoopThread(std::unique_ptr<LoopOwner> owner)
    : process_(::getpid()), owner_(std::move(owner)) {
  thread_ = std::make_unique<std::thread>(
      start_quiet_thread([loop = &owner_->loop()] { loop->run(); }));
}

LoopThread::~LoopThread() {
  if (::getpid() != process_) {
    // A forked child has no such thread, and its copy of the memory may be in
    // mid-change; so both are leaked.
    (void)owner_.release();
    (void)thread_.release();
    return;
  }
  owner_->loop().stop();
  thread_->join();
}

}  // namespace allhands::store
