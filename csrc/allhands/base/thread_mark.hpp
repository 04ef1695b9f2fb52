// Marks the calling thread, for a while, as one that works for `owner` or runs a
// callback of it; such a thread must not wait for the owner's end.
#pragma once

namespace allhands {

class ThreadMark {
 public:
  explicit ThreadMark(const void* owner) : owner_(owner), outer_(innermost) {
    innermost = this;
  }
  ~ThreadMark() { innermost = outer_; }
  ThreadMark(const ThreadMark&) = delete;
  ThreadMark& operator=(const ThreadMark&) = delete;

  static bool is_set(const void* owner) {
    const ThreadMark* mark = innermost;
    while (mark != nullptr && mark->owner_ != owner) mark = mark->outer_;
    return mark != nullptr;
  }

 private:
  static inline thread_local const ThreadMark* innermost = nullptr;

  const void* const owner_;
  const ThreadMark* const outer_;
};

}  // namespace allhands
