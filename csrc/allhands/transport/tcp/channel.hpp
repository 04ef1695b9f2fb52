// One group's lane of a connection: the records that have come for the group, how much
// room the peer has for more, and what the peer says of itself.
//
// A channel exists before this process has joined the group, to keep what comes early.
// The thread that reads the socket puts records in; the group takes them out. Room is
// counted in bytes since the beginning, as Channel::cost() counts them. Thread-safe;
// the comments below say who may call what.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>

#include "allhands/base/error.hpp"
#include "allhands/transport/tcp/frame.hpp"
#include "allhands/transport/tcp/group_events.hpp"
#include "allhands/transport/tcp/record_queue.hpp"
#include "allhands/transport/tcp/saying.hpp"

namespace allhands {

// One group's lane of a connection.
class Channel {
 public:
  // The most bytes that a sender may have on the way, or unread at its receiver.
  static constexpr std::size_t kWindow = std::size_t{2} << 20;
  static constexpr std::size_t kMaxRecord = std::size_t{768} << 10;
  // The cost of a record, which covers the memory that keeps it.
  static std::size_t cost(std::size_t record_bytes) { return record_bytes + 64; }

  explicit Channel(std::uint64_t id) : id_(id) {}

  std::uint64_t id() const { return id_; }
  // From now on, reports events to `events` as events of rank `peer`. This rank is
  // `self`.
  void attach(std::shared_ptr<GroupEvents> events, int peer, int self);

  void detach();

  // Call under the lock of the group's links.
  bool has_room(std::size_t record_bytes) const {
    return sent_.load(std::memory_order_relaxed) + cost(record_bytes) -
               popped_there_.load(std::memory_order_acquire) <=
           kWindow;
  }
  void take_room(std::size_t record_bytes) {
    sent_.fetch_add(cost(record_bytes), std::memory_order_relaxed);
  }
  // Gives back the room of a record that was not sent after all.
  void give_room(std::size_t record_bytes) {
    sent_.fetch_sub(cost(record_bytes), std::memory_order_relaxed);
  }
  // The bytes sent so far, and those that the peer has popped, as far as it has told.
  std::uint64_t sent() const { return sent_.load(std::memory_order_relaxed); }
  std::uint64_t popped_there() const {
    return popped_there_.load(std::memory_order_acquire);
  }
  std::uint64_t settled_there() const {
    return settled_there_.load(std::memory_order_relaxed);
  }
  std::span<const std::byte> front() { return queue_.front(); }
  Landed landed() { return queue_.landed(); }
  void expect(LandingKey key, std::span<std::byte> memory);
  // Returns true if a body with this key is landing just now; then the caller must tell
  // the thread that reads frames.
  bool forget(LandingKey key);
  // Both return true if so much was popped or settled since the peer was last told that
  // it must be told now.
  bool pop();
  bool settle(std::size_t bytes);

  // May be called from any thread.
  bool has_record() const { return queue_.has_record(); }
  bool has_untold() const;
  void tell_events();
  Presence presence() const { return presence_.load(std::memory_order_acquire); }
  std::optional<Error> abort_reason() const;
  // Call before looking at the records: a record that comes later lists the channel
  // again.
  void unlist() { is_listed_.exchange(false, std::memory_order_acq_rel); }

  // For the thread that writes frames, under the connection's lock.
  void stamp(FrameHead& head);

  // For the thread that reads frames. Throws LinkError if the numbers cannot be true.
  void see(const FrameHead& head);
  // If a body has `landed`, the record holds only its head.
  std::byte* reserve(std::size_t record_bytes, Landed landed = {});
  // Returns where a body with this key goes from now until the record is committed, or
  // null if it goes into the record.
  std::byte* begin_landing(Landed landed);
  void commit();
  // The same as begin_landing(), commit() and forget() for bodies that come another way
  // than their records, of which many may be on their way. Any thread: finish().
  std::byte* take_place(Landed landed);
  std::uint64_t commit_unfinished() { return queue_.commit_unfinished(); }
  void finish(std::uint64_t number);
  void take(const Saying& saying);
  // The peer counts this rank as dead; the group takes it as an abort that the peer
  // reported.
  void take_own_end(const std::string& why);

 private:
  static constexpr std::size_t kUntold = kWindow / 2;

  std::byte* take_place_locked(Landed landed);

  const std::uint64_t id_;
  RecordQueue queue_;
  std::uint64_t reserved_ = 0;  // bytes in all; used by the thread that reads frames
  std::atomic<std::uint64_t> sent_ = 0;
  std::atomic<std::uint64_t> popped_there_ = 0;
  std::atomic<std::uint64_t> settled_there_ = 0;
  std::atomic<std::uint64_t> popped_ = 0;
  std::atomic<std::uint64_t> settled_ = 0;
  std::atomic<std::uint64_t> told_popped_ = 0;
  std::atomic<std::uint64_t> told_settled_ = 0;
  std::atomic<Presence> presence_ = Presence::Here;
  // Whether the peer waits to hear that what came another way was popped.
  std::atomic<bool> has_finished_ = false;
  // Whether the channel is among the events' writers.
  std::atomic<bool> is_listed_ = false;

  mutable std::mutex mutex_;  // guards what follows
  // The part still to come of each body with a key goes here.
  std::unordered_map<LandingKey, std::span<std::byte>> places_;
  LandingKey landing_ = kNoLanding;  // the body that is landing now
  std::optional<Error> why_;
  std::shared_ptr<GroupEvents> events_;  // null: the group was not joined
  int peer_ = -1;
  int self_ = -1;
};

}  // namespace allhands
