// One group's lane of a connection: what has come for it, how much room the peer has
// for more, and what the peer says of itself.
//
// It is there before this process has joined the group, for what comes early. The side
// that reads the socket puts records in; the group takes them out. Room is counted in
// bytes since the beginning, as Channel::cost() does. Thread-safe; who may call what is
// said below.
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
  // What a sender may have on its way, or unread at its receiver.
  static constexpr std::size_t kWindow = std::size_t{2} << 20;
  static constexpr std::size_t kMaxRecord = std::size_t{256} << 10;
  // Of a record; covers what its keeping takes.
  static std::size_t cost(std::size_t record_bytes) { return record_bytes + 64; }

  explicit Channel(std::uint64_t id) : id_(id) {}

  std::uint64_t id() const { return id_; }
  // Whose events are told of from now on, as those of rank `peer`; it is rank `self`.
  void attach(std::shared_ptr<GroupEvents> events, int peer, int self);

  void detach();

  // Under the lock of the group's links.
  bool has_room(std::size_t record_bytes) const {
    return sent_.load(std::memory_order_relaxed) + cost(record_bytes) -
               popped_there_.load(std::memory_order_acquire) <=
           kWindow;
  }
  void take_room(std::size_t record_bytes) {
    sent_.fetch_add(cost(record_bytes), std::memory_order_relaxed);
  }
  // Of what has not gone after all.
  void give_room(std::size_t record_bytes) {
    sent_.fetch_sub(cost(record_bytes), std::memory_order_relaxed);
  }
  std::uint64_t settled_there() const {
    return settled_there_.load(std::memory_order_relaxed);
  }
  std::span<const std::byte> front() { return queue_.front(); }
  Landed landed() { return queue_.landed(); }
  void expect(LandingKey key, std::span<std::byte> memory);
  // True: a body with this key is landing just now, and who reads frames is to be told.
  bool forget(LandingKey key);
  // True: so much was popped or settled since the peer was told that it has to be now.
  bool pop();
  bool settle(std::size_t bytes);

  // From any thread.
  bool has_record() const { return queue_.has_record(); }
  bool has_untold() const;
  void tell_events();
  Presence presence() const { return presence_.load(std::memory_order_acquire); }
  std::optional<Error> abort_reason() const;
  // Before the records are looked at: who puts in another one lists it again.
  void unlist() { is_listed_.exchange(false, std::memory_order_acq_rel); }

  // Of who writes frames, under the connection's lock.
  void stamp(FrameHead& head);

  // Of who reads frames. Throws LinkError where a peer says what cannot be.
  void see(const FrameHead& head);
  // Of `landed`, only the head is in the record.
  std::byte* reserve(std::size_t record_bytes, Landed landed = {});
  // Where a body with this key goes from now until the record is committed; null: into
  // the record.
  std::byte* begin_landing(Landed landed);
  void commit();
  void take(const Saying& saying);
  // The peer counts this rank as dead: for the group, as if it had aborted and said so.
  void take_own_end(const std::string& why);

 private:
  static constexpr std::size_t kUntold = kWindow / 4;

  const std::uint64_t id_;
  RecordQueue queue_;
  std::uint64_t reserved_ = 0;  // in all, by who reads frames
  std::atomic<std::uint64_t> sent_ = 0;
  std::atomic<std::uint64_t> popped_there_ = 0;
  std::atomic<std::uint64_t> settled_there_ = 0;
  std::atomic<std::uint64_t> popped_ = 0;
  std::atomic<std::uint64_t> settled_ = 0;
  std::atomic<std::uint64_t> told_popped_ = 0;
  std::atomic<std::uint64_t> told_settled_ = 0;
  std::atomic<Presence> presence_ = Presence::Here;
  std::atomic<bool> is_listed_ = false;  // among the events' writers

  mutable std::mutex mutex_;  // guards what follows
  // Where bodies with a key go: what is left of it.
  std::unordered_map<LandingKey, std::span<std::byte>> places_;
  LandingKey landing_ = kNoLanding;  // the body that is on its way to its place
  std::optional<Error> why_;
  std::shared_ptr<GroupEvents> events_;  // null: not joined
  int peer_ = -1;
  int self_ = -1;
};

}  // namespace allhands
