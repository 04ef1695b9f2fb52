// This process's way into UCX: sends to other processes' workers, and receives by tag.
//
// Whoever waits makes progress; while nobody does, a thread can sleep on fd(). Sends
// and receives end in whatever thread makes progress. Thread-safe, as one lock guards
// every call of UCX; a request's function runs without it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "allhands/transport/ucx/library.hpp"

namespace allhands {

// A send or a receive under way. UCX uses its memory until is_over().
class UcxRequest {
 public:
  enum class State { Going, Done, Failed };
  // Called once it is over, by any thread; must not throw.
  using OnEnd = std::function<void(const UcxRequest&)>;

  UcxRequest(OnEnd on_end, std::size_t bytes)
      : on_end_(std::move(on_end)), bytes_(bytes) {}

  State state() const { return state_.load(std::memory_order_acquire); }
  bool is_over() const { return state() != State::Going; }

 private:
  friend class UcxWorker;

  std::atomic<State> state_ = State::Going;
  OnEnd on_end_;
  const std::size_t bytes_;
  void* handle_ = nullptr;  // UCX's; null before and after
  // Keeps the object while UCX has a pointer to it.
  std::shared_ptr<UcxRequest> self_;
};
using UcxRequestPtr = std::shared_ptr<UcxRequest>;

class UcxEndpoint;

// This process's way into UCX.
class UcxWorker : public std::enable_shared_from_this<UcxWorker> {
 public:
  // Throws Backend if there is no UCX, or it finds no way to communicate.
  static std::shared_ptr<UcxWorker> make();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;
  ~UcxWorker();

  // What other processes need to reach this one.
  const std::string& address() const { return address_; }
  // Connects to the worker with this address. `on_error` is called when UCX has given
  // that worker up, under the lock. Throws Backend.
  std::unique_ptr<UcxEndpoint> connect(const std::string& address,
                                       std::function<void()> on_error);

  // Receives the message with `tag`, which has as many bytes as `memory`.
  UcxRequestPtr receive(Ucx::Tag tag, std::span<std::byte> memory,
                        UcxRequest::OnEnd on_end);
  // Asks UCX to give the receive up, which it does if the message has not begun to
  // come. It is over later, in any case.
  void cancel(UcxRequest& request);

  // Does what can be done now. Returns false if that was nothing.
  bool progress();
  // The same, unless another thread is at it, or nothing is under way.
  void help();
  // Makes progress until `is_met()` or `limit`. Returns whether it is met.
  bool progress_until(const std::function<bool()>& is_met,
                      std::chrono::nanoseconds limit);

  // Readable when there is something to do, if arm() came before.
  int fd() const { return fd_; }
  // Returns false if there is something to do at once.
  bool arm();
  // How many messages were sent so far.
  std::uint64_t num_sent() const { return num_sent_.load(std::memory_order_relaxed); }
  // How often help() has made progress.
  std::uint64_t num_helped() const { return helped_.load(std::memory_order_relaxed); }

 private:
  friend class UcxEndpoint;

  UcxWorker();
  void open(ucp_config* config);
  UcxRequestPtr start(
      const std::function<Ucx::StatusPointer(Ucx::RequestParams&)>& call, bool is_send,
      UcxRequest::OnEnd on_end, std::size_t bytes);
  void end_locked(UcxRequest& request, UcxRequest::State state);
  void tell_ended(std::unique_lock<std::mutex> lock);
  static void on_sent(void* handle, Ucx::Status status, void* user);
  static void on_received(void* handle, Ucx::Status status, const Ucx::Received* what,
                          void* user);

  const Ucx& ucx_;
  std::string address_;
  int fd_ = -1;
  std::atomic<std::uint64_t> helped_ = 0;
  std::atomic<std::uint64_t> num_sent_ = 0;
  std::atomic<std::size_t> num_going_ = 0;

  std::mutex mutex_;  // guards what follows, and UCX
  ucp_context* context_ = nullptr;
  ucp_worker* worker_ = nullptr;
  // Requests whose function is to be called.
  std::vector<UcxRequestPtr> ended_;
};

// The way to one other worker.
class UcxEndpoint {
 public:
  UcxEndpoint(std::shared_ptr<UcxWorker> worker, const std::string& address,
              std::function<void()> on_error);
  UcxEndpoint(const UcxEndpoint&) = delete;
  UcxEndpoint& operator=(const UcxEndpoint&) = delete;
  ~UcxEndpoint() { close(); }

  // Sends `body` to the receive for `tag` there.
  UcxRequestPtr send(Ucx::Tag tag, std::span<const std::byte> body,
                     UcxRequest::OnEnd on_end);
  // Ends everything under way with that worker, as failed. Idempotent.
  void close();
  // Whether something can be sent, as far as is known.
  bool is_usable() const { return status_.load(std::memory_order_acquire) == Ucx::kOk; }
  // Why nothing can; empty: it can.
  std::string problem() const;

 private:
  static void note_error(void* self, ucp_ep*, Ucx::Status status);

  const std::shared_ptr<UcxWorker> worker_;
  const std::function<void()> on_error_;
  ucp_ep* endpoint_ = nullptr;  // null: closed; guarded by the worker's lock
  std::atomic<Ucx::Status> status_ = Ucx::kOk;
};

}  // namespace allhands
