#include "allhands/transport/ucx/worker.hpp"

#include <chrono>
#include <thread>
#include <utility>

#include "allhands/base/error.hpp"

namespace allhands {
namespace {

constexpr Ucx::Tag kWholeTag = ~Ucx::Tag{0};
// For what UCX does without the peer.
constexpr std::chrono::seconds kCloseLimit{1};

[[noreturn]] void fail(const Ucx& ucx, const std::string& what, Ucx::Status status) {
  throw Error(ErrorKind::Backend, std::string("UCX ") + ucx.version() + " cannot " +
                                      what + ": " + ucx.describe(status));
}

void check(const Ucx& ucx, const char* what, Ucx::Status status) {
  if (status != Ucx::kOk) fail(ucx, what, status);
}

}  // namespace

std::shared_ptr<UcxWorker> UcxWorker::make() {
  return std::shared_ptr<UcxWorker>(new UcxWorker());
}

UcxWorker::UcxWorker() : ucx_(Ucx::loaded()) {
  ucp_config* config = nullptr;
  check(ucx_, "read its settings", ucx_.config_read(nullptr, nullptr, &config));
  try {
    open(config);
  } catch (...) {
    ucx_.config_release(config);
    if (worker_ != nullptr) ucx_.worker_destroy(worker_);
    if (context_ != nullptr) ucx_.cleanup(context_);
    throw;
  }
  ucx_.config_release(config);
}

void UcxWorker::open(ucp_config* config) {
  // Every message by the rendezvous protocol: nothing of it lies in UCX's own memory,
  // and a receive that has begun always belongs to an endpoint, whose end ends it.
  check(ucx_, "set RNDV_THRESH", ucx_.config_modify(config, "RNDV_THRESH", "0"));
  Ucx::ContextParams context = {};
  context.mask = Ucx::ContextParams::kFeatures;
  context.features =
      Ucx::ContextParams::kTagFeature | Ucx::ContextParams::kWakeupFeature;
  check(ucx_, "start", ucx_.init_version(1, 13, &context, config, &context_));
  Ucx::WorkerParams worker = {};
  worker.mask = Ucx::WorkerParams::kThreadMode;
  worker.thread_mode = Ucx::WorkerParams::kSerialized;
  check(ucx_, "open a worker", ucx_.worker_create(context_, &worker, &worker_));
  ucp_address* address = nullptr;
  std::size_t bytes = 0;
  check(ucx_, "tell its address", ucx_.worker_get_address(worker_, &address, &bytes));
  address_.assign(reinterpret_cast<const char*>(address), bytes);
  ucx_.worker_release_address(worker_, address);
  check(ucx_, "wait for events", ucx_.worker_get_efd(worker_, &fd_));
}

UcxWorker::~UcxWorker() {
  ucx_.worker_destroy(worker_);
  ucx_.cleanup(context_);
}

std::unique_ptr<UcxEndpoint> UcxWorker::connect(const std::string& address,
                                                std::function<void()> on_error) {
  return std::make_unique<UcxEndpoint>(shared_from_this(), address,
                                       std::move(on_error));
}

// Notes that a request is over. The lock is held.
void UcxWorker::end_locked(UcxRequest& request, UcxRequest::State state) {
  request.handle_ = nullptr;
  request.state_.store(state, std::memory_order_release);
  num_going_.fetch_sub(1, std::memory_order_relaxed);
  ended_.push_back(std::move(request.self_));
}

// Calls the functions of what is over, without the lock.
void UcxWorker::tell_ended(std::unique_lock<std::mutex> lock) {
  if (ended_.empty()) return;
  const std::vector<UcxRequestPtr> ended = std::exchange(ended_, {});
  lock.unlock();
  for (const UcxRequestPtr& each : ended) {
    if (each->on_end_) each->on_end_(*each);
    each->on_end_ = nullptr;
  }
}

namespace {

// What UCX calls for a request finds the worker and the request here.
struct Going {
  UcxWorker* worker;
  UcxRequest* request;
};

}  // namespace

void UcxWorker::on_sent(void* handle, Ucx::Status status, void* user) {
  const std::unique_ptr<Going> going(static_cast<Going*>(user));
  const Ucx& ucx = going->worker->ucx_;
  going->worker->end_locked(*going->request, status == Ucx::kOk
                                                 ? UcxRequest::State::Done
                                                 : UcxRequest::State::Failed);
  ucx.request_free(handle);
}

void UcxWorker::on_received(void* handle, Ucx::Status status, const Ucx::Received* what,
                            void* user) {
  const auto* const going = static_cast<Going*>(user);
  const bool is_whole = status == Ucx::kOk && what->bytes == going->request->bytes_;
  on_sent(handle, status == Ucx::kOk && !is_whole ? Ucx::kCanceled : status, user);
}

// Starts what `call` does with the parameters of a request.
UcxRequestPtr UcxWorker::start(
    const std::function<Ucx::StatusPointer(Ucx::RequestParams&)>& call, bool is_send,
    UcxRequest::OnEnd on_end, std::size_t bytes) {
  auto request = std::make_shared<UcxRequest>(std::move(on_end), bytes);
  auto going = std::make_unique<Going>(Going{this, request.get()});
  Ucx::RequestParams params = {};
  // Never at once: a receive has to tell how many bytes came.
  params.mask = Ucx::RequestParams::kCallback | Ucx::RequestParams::kUser |
                Ucx::RequestParams::kMemoryType | Ucx::RequestParams::kNeverAtOnce;
  params.memory_type = Ucx::RequestParams::kHostMemory;
  params.user = going.get();
  if (is_send)
    params.callback.sent = &on_sent;
  else
    params.callback.received = &on_received;
  std::unique_lock lock(mutex_);
  request->self_ = request;
  num_going_.fetch_add(1, std::memory_order_relaxed);
  const Ucx::StatusPointer returned = call(params);
  if (returned == nullptr || Ucx::is_error(returned)) {
    end_locked(*request, returned == nullptr ? UcxRequest::State::Done
                                             : UcxRequest::State::Failed);
  } else {
    (void)going.release();
    // The request may be over already, within the call.
    if (request->self_) request->handle_ = returned;
  }
  tell_ended(std::move(lock));
  return request;
}

UcxRequestPtr UcxWorker::receive(Ucx::Tag tag, std::span<std::byte> memory,
                                 UcxRequest::OnEnd on_end) {
  return start(
      [&](const Ucx::RequestParams& params) {
        return ucx_.tag_recv(worker_, memory.data(), memory.size(), tag, kWholeTag,
                             &params);
      },
      false, std::move(on_end), memory.size());
}

void UcxWorker::cancel(UcxRequest& request) {
  std::unique_lock lock(mutex_);
  if (request.handle_ != nullptr) ucx_.request_cancel(worker_, request.handle_);
  tell_ended(std::move(lock));
}

bool UcxWorker::progress() {
  std::unique_lock lock(mutex_);
  const bool has_moved = ucx_.worker_progress(worker_) != 0;
  tell_ended(std::move(lock));
  return has_moved;
}

void UcxWorker::help() {
  if (num_going_.load(std::memory_order_relaxed) == 0) return;
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;
  helped_.store(helped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  ucx_.worker_progress(worker_);
  tell_ended(std::move(lock));
}

bool UcxWorker::progress_until(const std::function<bool()>& is_met,
                               std::chrono::nanoseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!is_met()) {
    if (progress()) continue;
    if (std::chrono::steady_clock::now() >= end) return is_met();
    std::this_thread::yield();
  }
  return true;
}

bool UcxWorker::arm() {
  const std::lock_guard lock(mutex_);
  return ucx_.worker_arm(worker_) == Ucx::kOk;
}

UcxEndpoint::UcxEndpoint(std::shared_ptr<UcxWorker> worker, const std::string& address,
                         std::function<void()> on_error)
    : worker_(std::move(worker)), on_error_(std::move(on_error)) {
  Ucx::EndpointParams params = {};
  params.mask = Ucx::EndpointParams::kAddress | Ucx::EndpointParams::kErrorMode |
                Ucx::EndpointParams::kErrorHandler;
  params.address = reinterpret_cast<const ucp_address*>(address.data());
  params.error_mode = Ucx::EndpointParams::kErrorsOfPeer;
  params.on_error = &note_error;
  params.argument = this;
  const std::lock_guard lock(worker_->mutex_);
  check(worker_->ucx_, "connect",
        worker_->ucx_.ep_create(worker_->worker_, &params, &endpoint_));
}

void UcxEndpoint::note_error(void* self, ucp_ep*, Ucx::Status status) {
  auto* const endpoint = static_cast<UcxEndpoint*>(self);
  endpoint->status_.store(status, std::memory_order_release);
  endpoint->on_error_();
}

UcxRequestPtr UcxEndpoint::send(Ucx::Tag tag, std::span<const std::byte> body,
                                UcxRequest::OnEnd on_end) {
  return worker_->start(
      [&](const Ucx::RequestParams& params) -> Ucx::StatusPointer {
        if (endpoint_ == nullptr)
          return reinterpret_cast<void*>(std::intptr_t{Ucx::kCanceled});
        worker_->num_sent_.fetch_add(1, std::memory_order_relaxed);
        return worker_->ucx_.tag_send(endpoint_, body.data(), body.size(), tag,
                                      &params);
      },
      true, std::move(on_end), body.size());
}

void UcxEndpoint::close() {
  UcxRequestPtr closing = worker_->start(
      [&](Ucx::RequestParams& params) -> Ucx::StatusPointer {
        ucp_ep* const endpoint = std::exchange(endpoint_, nullptr);
        Ucx::Status fine = Ucx::kOk;
        status_.compare_exchange_strong(fine, Ucx::kCanceled);
        if (endpoint == nullptr)
          return reinterpret_cast<void*>(std::intptr_t{Ucx::kCanceled});
        params.mask &= ~Ucx::RequestParams::kMemoryType;
        params.mask |= Ucx::RequestParams::kFlags;
        params.flags = Ucx::RequestParams::kForcedClose;
        return worker_->ucx_.ep_close(endpoint, &params);
      },
      true, nullptr, 0);
  worker_->progress_until([&] { return closing->is_over(); }, kCloseLimit);
}

std::string UcxEndpoint::problem() const {
  const Ucx::Status status = status_.load(std::memory_order_acquire);
  if (status == Ucx::kOk) return {};
  return std::string("UCX: ") + worker_->ucx_.describe(status);
}

}  // namespace allhands
