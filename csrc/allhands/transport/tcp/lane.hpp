// The bodies of a connection's records that go by UCX, from array to array, past its
// socket. A frame over the socket announces each of them, in order, so that records
// stay in order and have the same room as others. UCX finds a body's receive by a tag,
// made of a number that only these two processes know, and the body's number.
//
// What UCX loses cannot be sent again, so a lane that fails while a body is on its way
// ends the connection. One that fails before is no longer used. Thread-safe; receive()
// belongs to the thread that reads the socket.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "allhands/transport/tcp/channel.hpp"
#include "allhands/transport/tcp/frame.hpp"
#include "allhands/transport/ucx/worker.hpp"

namespace allhands {

// The bodies of a connection's records that go by UCX.
class Lane {
 public:
  // Bodies of fewer bytes go over the socket. This was not measured: over TCP, where
  // UCX was tried, it is slower at every size.
  static constexpr std::size_t kLeastBytes = std::size_t{64} << 10;
  static constexpr unsigned kNumberBits = 24;

  // The upper bits of the tags of what one process sends to another.
  static Ucx::Tag tags(const std::string& secret, const std::string& from,
                       const std::string& to);

  // `there`: the address of the peer's worker. `on_trouble` is called when tend() has
  // something to do, by any thread, under the worker's lock or none; must not throw.
  Lane(std::shared_ptr<UcxWorker> worker, const std::string& there, Ucx::Tag outgoing,
       Ucx::Tag incoming, std::function<void()> on_trouble);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  ~Lane() { close(); }

  // Whether bodies can be sent, as far as is known.
  bool is_usable() const {
    return endpoint_ != nullptr && endpoint_->is_usable() && !has_lost();
  }
  // Why they cannot; empty: they can.
  std::string problem() const;
  // Whether a body was lost.
  bool has_lost() const { return has_lost_.load(std::memory_order_acquire); }
  // Gives up what cannot come any more.
  void tend();

  // Sends the next body, which the peer must be told about with this number. The
  // channel's events tell when it was read.
  UcxRequestPtr send(std::uint64_t number, std::span<const std::byte> body,
                     std::shared_ptr<Channel> channel);
  // Receives the body of `record` to where `channel` expects it, or into the record; if
  // `channel` is null, nowhere. Throws LinkError.
  void receive(const Announcement& record, LandingKey key,
               const std::shared_ptr<Channel>& channel);
  // From now on nothing is written to where bodies with `key` were expected.
  void forget(LandingKey key, const Channel& channel);
  // Waits until UCX reads the request's memory no more, which may cost the lane.
  void stop(const UcxRequest& request);
  // Does what can be done now, if something is under way.
  void help() const { worker_->help(); }
  // Ends everything that is under way. Idempotent.
  void close();

 private:
  // A body that is on its way here.
  struct Incoming {
    UcxRequestPtr request;
    Ucx::Tag tag;
    LandingKey key;                    // of an expected body; else kNoLanding
    std::shared_ptr<Channel> channel;  // null: the body goes nowhere
    std::uint64_t record = 0;          // of the channel, to be finished
    std::size_t bytes = 0;
    std::unique_ptr<std::byte[]> scratch;
    std::atomic<bool> is_given_up = false;
  };

  void post(const std::shared_ptr<Incoming>& body, std::byte* memory);
  void divert(const std::shared_ptr<Incoming>& body);
  void lose();
  void drop_over();

  const std::shared_ptr<UcxWorker> worker_;
  const Ucx::Tag outgoing_;
  const Ucx::Tag incoming_tag_;
  const std::function<void()> on_trouble_;
  std::unique_ptr<UcxEndpoint> endpoint_;  // null: UCX finds no way
  std::string no_way_;                     // why
  std::atomic<bool> has_lost_ = false;
  std::atomic<bool> is_closed_ = false;
  std::atomic<std::size_t> num_incoming_ = 0;

  std::mutex mutex_;  // guards what follows; comes before the worker's
  std::list<std::shared_ptr<Incoming>> incoming_;
  std::uint64_t next_ = 0;  // the number of the next body
};

}  // namespace allhands
