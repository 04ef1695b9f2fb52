// A transport between ranks that are threads of one process: queues under a mutex, with
// no shared memory, no single copies, and no word from the kernel about who lives. What
// runs on it as on shared memory knows only the interface.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <vector>

#include "allhands/transport/transport.hpp"

namespace allhands::testing {

// One rank, as all of them see it.
class LoopbackRank {
 public:
  std::uint32_t num_events() const { return num_events_.load(); }
  void tell() {
    const std::lock_guard lock(mutex_);
    ++num_events_;
    changed_.notify_all();
    if (wake_) wake_();
  }
  // Is called for each event from now on; none: nothing is.
  void set_wake(std::function<void()> wake) {
    const std::lock_guard lock(mutex_);
    wake_ = std::move(wake);
  }
  void sleep(std::uint32_t seen, std::chrono::nanoseconds limit) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, limit, [&] { return num_events_ != seen; });
  }

  void leave(Presence how, const Error& why) {
    const std::lock_guard lock(mutex_);
    if (how == Presence::Aborted) reason_ = why;
    presence = how;
  }
  std::optional<Error> reason() const {
    const std::lock_guard lock(mutex_);
    return reason_;
  }

  std::atomic<Presence> presence = Presence::Here;

 private:
  std::atomic<std::uint32_t> num_events_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Error> reason_;  // of an abort
  std::function<void()> wake_;
};

// What is on its way from one rank to another.
class LoopbackQueue {
 public:
  using Record = std::vector<std::byte>;

  bool has_room(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    wants_room_ = num_bytes_ + bytes > kCapacity;
    return !wants_room_;
  }
  void push(Record record) {
    const std::lock_guard lock(mutex_);
    num_bytes_ += record.size();
    records_.push_back(std::move(record));
    ++num_records_;
  }
  bool has_record() const { return num_records_ != 0; }
  std::span<const std::byte> front() {
    const std::lock_guard lock(mutex_);
    if (records_.empty()) return {};
    return records_.front();
  }
  // True: the writer waits for room.
  bool pop() {
    const std::lock_guard lock(mutex_);
    num_bytes_ -= records_.front().size();
    records_.pop_front();
    --num_records_;
    return std::exchange(wants_room_, false);
  }

  static constexpr std::size_t kCapacity = 65536;
  std::atomic<std::uint64_t> settled = 0;

 private:
  std::mutex mutex_;
  std::deque<Record> records_;
  std::size_t num_bytes_ = 0;
  bool wants_room_ = false;
  std::atomic<std::size_t> num_records_ = 0;
};

class LoopbackLink final : public Link {
 public:
  LoopbackLink(LoopbackQueue& out, LoopbackQueue& in, LoopbackRank& peer)
      : out_(out), in_(in), peer_(peer) {}

  std::size_t max_record() override { return LoopbackQueue::kCapacity / 2; }
  std::byte* reserve(std::size_t bytes) override {
    if (!out_.has_room(bytes)) return nullptr;
    reserved_.assign(bytes, std::byte{0xee});
    return reserved_.data();
  }
  void commit() override { out_.push(std::move(reserved_)); }
  void wake_peer() override { peer_.tell(); }
  bool is_safe_to_leave() const override { return true; }  // the queue stays
  bool has_record() const override { return in_.has_record(); }
  std::span<const std::byte> front() override { return in_.front(); }
  void pop() override {
    if (in_.pop()) peer_.tell();
  }
  void settle(std::size_t bytes) override { in_.settled += bytes; }
  std::uint64_t settled() const override { return out_.settled; }

 private:
  LoopbackQueue& out_;
  LoopbackQueue& in_;
  LoopbackRank& peer_;
  LoopbackQueue::Record reserved_;
};

// The ranks of a group. Must outlive their transports.
class Loopback {
 public:
  explicit Loopback(int size)
      : ranks_(static_cast<std::size_t>(size)),
        queues_(ranks_.size() * ranks_.size()) {}

  std::unique_ptr<Transport> transport(int rank) {
    return std::make_unique<Here>(*this, static_cast<std::size_t>(rank));
  }
  LoopbackRank& rank(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  // Runs before a rank looks the next time whether another one is here.
  void before_next_look(std::function<void()> event) { event_ = std::move(event); }

 private:
  class Here final : public Transport {
   public:
    Here(Loopback& all, std::size_t rank) : all_(all), self_(all.ranks_[rank]) {
      const std::size_t size = all.ranks_.size();
      for (std::size_t peer = 0; peer < size; ++peer)
        links_.emplace_back(all.queues_[rank * size + peer],
                            all.queues_[peer * size + rank], all.ranks_[peer]);
      ready_.resize(size);
    }

    ~Here() override { self_.set_wake({}); }

    Link& link(int peer) override { return links_[static_cast<std::size_t>(peer)]; }
    std::span<const int> ready() override {
      ready_.clear();
      for (std::size_t peer = 0; peer < links_.size(); ++peer)
        if (links_[peer].has_record()) ready_.push_back(static_cast<int>(peer));
      return ready_;
    }
    std::uint32_t num_events() override { return self_.num_events(); }
    void sleep(std::uint32_t seen, std::chrono::nanoseconds limit) override {
      self_.sleep(seen, limit);
    }
    void wake_self() override { self_.tell(); }
    Presence presence(int peer) const override {
      if (all_.event_) std::exchange(all_.event_, {})();
      return all_.ranks_[static_cast<std::size_t>(peer)].presence;
    }
    bool is_alive(int) const override { return true; }
    bool has_aborted() const override {
      return std::any_of(all_.ranks_.begin(), all_.ranks_.end(), [](const auto& rank) {
        return rank.presence == Presence::Aborted;
      });
    }
    std::optional<Error> abort_reason(int peer) const override {
      return all_.ranks_[static_cast<std::size_t>(peer)].reason();
    }
    void leave(Presence how, const Error& why) override {
      self_.leave(how, why);
      for (LoopbackRank& rank : all_.ranks_) rank.tell();
    }

   private:
    Loopback& all_;
    LoopbackRank& self_;
    std::deque<LoopbackLink> links_;
    std::vector<int> ready_;
  };

  std::vector<LoopbackRank> ranks_;
  std::vector<LoopbackQueue> queues_;  // [from][to]
  std::function<void()> event_;
};

}  // namespace allhands::testing
