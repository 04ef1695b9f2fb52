// The bodies of a connection's records that go by UCX, from array to array, past its
// socket. A frame over the socket announces each of them, in order, so that records
// stay in order and have the same room as others. UCX finds a body's receive by a tag,
// made of a number that only these two processes know, and the body's number.
//
// If UCX fails, both processes give the lane up. Bodies that were on their way come
// over the socket then, and so do all later ones. Thread-safe; receive(), begin() and
// end() belong to the thread that reads the socket.
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

  // `there`: the address of the peer's worker. `on_trouble` is called when has_failed()
  // changes, by any thread, under the worker's lock or none; must not throw.
  Lane(std::shared_ptr<UcxWorker> worker, const std::string& there, Ucx::Tag outgoing,
       Ucx::Tag incoming, std::function<void()> on_trouble);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  ~Lane() { close(); }

  // Whether nothing more goes by UCX, as far as is known.
  bool has_failed() const {
    return endpoint_ == nullptr || !endpoint_->is_usable() ||
           has_lost_.load(std::memory_order_acquire);
  }
  // Why; empty: nothing has failed.
  std::string problem() const;

  // Sends the body with this number, about which the peer must be told. The channel's
  // events tell when UCX has read it.
  UcxRequestPtr send(std::uint64_t number, std::span<const std::byte> body,
                     std::shared_ptr<Channel> channel);
  // Receives the body of `record` to where `channel` expects it, or into the record; if
  // `channel` is null, nowhere. Throws LinkError.
  void receive(const Announcement& record, LandingKey key,
               const std::shared_ptr<Channel>& channel);
  // From now on UCX writes nothing to where bodies with `key` were expected. Returns
  // whether one of these comes over the socket just now.
  bool forget(LandingKey key, const Channel& channel);
  // Waits until UCX reads the request's memory no more, which may cost the lane.
  void stop(const UcxRequest& request);
  // Does what can be done now, if something is under way.
  void help() const { worker_->help(); }
  // Ends everything that is under way: UCX uses no memory of bodies any more.
  // Idempotent.
  void close();
  bool is_closed() const { return is_closed_.load(std::memory_order_acquire); }
  // Once the lane is closed: a body begins to come over the socket. Returns where it
  // goes until end(); null: nowhere, as UCX has brought it. Throws LinkError.
  std::byte* begin(std::uint64_t number, std::size_t bytes);
  // The body is there.
  void end();
  // Whether the body that comes over the socket just now goes nowhere.
  bool is_coming_nowhere();

 private:
  // A body that is on its way here.
  struct Incoming {
    UcxRequestPtr request;  // null: it comes over the socket
    std::uint64_t number = 0;
    LandingKey key;                    // of an expected body; else kNoLanding
    std::shared_ptr<Channel> channel;  // null: the body goes nowhere
    std::uint64_t record = 0;          // of the channel, to be finished
    std::size_t bytes = 0;
    std::byte* place = nullptr;  // null: nowhere
    std::unique_ptr<std::byte[]> scratch;
    std::atomic<bool> is_given_up = false;
  };

  void post(const std::shared_ptr<Incoming>& body);
  void divert(const std::shared_ptr<Incoming>& body);
  void lose();
  void drop_done();

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
  std::shared_ptr<Incoming> coming_;  // over the socket; may be null
  std::uint64_t next_ = 0;            // the number of the next body
};

}  // namespace allhands
