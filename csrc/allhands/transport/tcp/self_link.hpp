// The link of a rank to itself, if no other transport has one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "allhands/transport/link.hpp"
#include "allhands/transport/tcp/channel.hpp"
#include "allhands/transport/tcp/group_events.hpp"
#include "allhands/transport/tcp/record_queue.hpp"

namespace allhands {

class SelfLink final : public Link {
 public:
  // `events` must outlive the link.
  SelfLink(GroupEvents& events, int rank) : events_(events), rank_(rank) {}

  std::size_t max_record() override { return Channel::kMaxRecord; }
  std::byte* reserve(std::size_t bytes) override {
    if (unread_ + Channel::cost(bytes) > Channel::kWindow) return nullptr;
    reserved_ = bytes;
    return queue_.reserve(bytes);
  }
  void commit() override {
    queue_.commit();
    unread_ += Channel::cost(reserved_);
  }
  void wake_peer() override { events_.tell_record(rank_, is_listed_); }
  // Nothing has to leave the process.
  bool is_safe_to_leave() const override { return true; }

  bool has_record() const override { return queue_.has_record(); }
  std::span<const std::byte> front() override { return queue_.front(); }
  void pop() override {
    unread_ -= Channel::cost(queue_.pop());
    events_.tell();
  }
  void settle(std::size_t bytes) override { settled_ += bytes; }
  std::uint64_t settled() const override { return settled_; }

  void unlist() { is_listed_.exchange(false, std::memory_order_acq_rel); }

 private:
  GroupEvents& events_;
  const int rank_;
  RecordQueue queue_;
  std::size_t unread_ = 0;
  std::size_t reserved_ = 0;
  std::uint64_t settled_ = 0;
  std::atomic<bool> is_listed_ = false;
};

}  // namespace allhands
