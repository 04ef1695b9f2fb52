#include "allhands/transport/tcp/lane.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "allhands/net/sha256.hpp"

namespace allhands {
namespace {

// How long a peer that lives may take to end what it has begun.
constexpr std::chrono::seconds kPatience{1};
// For UCX to end what belongs to a closed endpoint.
constexpr std::chrono::seconds kEndLimit{5};

Ucx::Tag tag_of(Ucx::Tag tags, std::uint64_t number) {
  constexpr Ucx::Tag kNumbers = (Ucx::Tag{1} << Lane::kNumberBits) - 1;
  return tags | (number & kNumbers);
}

}  // namespace

Ucx::Tag Lane::tags(const std::string& secret, const std::string& from,
                    const std::string& to) {
  const Digest digest = hmac_sha256(secret, "allhands lane\n" + from + "\n" + to);
  Ucx::Tag tags = 0;
  std::memcpy(&tags, digest.data(), sizeof(tags));
  return tags << kNumberBits;
}

Lane::Lane(std::shared_ptr<UcxWorker> worker, const std::string& there,
           Ucx::Tag outgoing, Ucx::Tag incoming, std::function<void()> on_trouble)
    : worker_(std::move(worker)),
      outgoing_(outgoing),
      incoming_tag_(incoming),
      on_trouble_(std::move(on_trouble)) {
  try {
    endpoint_ = worker_->connect(there, on_trouble_);
  } catch (const Error& error) {
    no_way_ = error.what();
  }
}

std::string Lane::problem() const {
  if (endpoint_ == nullptr) return no_way_;
  const std::string problem = endpoint_->problem();
  return problem.empty() && has_lost() ? "UCX has lost a message" : problem;
}

UcxRequestPtr Lane::send(std::uint64_t number, std::span<const std::byte> body,
                         std::shared_ptr<Channel> channel) {
  return endpoint_->send(tag_of(outgoing_, number), body,
                         [this, channel = std::move(channel)](const UcxRequest& sent) {
                           if (sent.state() == UcxRequest::State::Failed) lose();
                           channel->tell_events();
                         });
}

void Lane::receive(const Announcement& record, LandingKey key,
                   const std::shared_ptr<Channel>& channel) {
  const std::lock_guard lock(mutex_);
  if (record.number != next_ || record.body_bytes > Channel::kMaxRecord)
    throw LinkError("body " + std::to_string(record.number) + " of " +
                    std::to_string(record.body_bytes) + " bytes comes by UCX, where " +
                    std::to_string(next_) + " is the next");
  if (is_closed_)
    throw LinkError("a body comes by UCX, which was given up: " + problem());
  drop_over();
  auto body = std::make_shared<Incoming>();
  body->tag = tag_of(incoming_tag_, next_++);
  body->bytes = record.body_bytes;
  std::byte* memory = nullptr;
  if (channel != nullptr) {
    const Landed landed = {key, body->bytes};
    std::byte* const place = channel->take_place(landed);
    const bool lands = place != nullptr;
    std::byte* const kept =
        channel->reserve(record.head.size() + body->bytes, lands ? landed : Landed{});
    std::memcpy(kept, record.head.data(), record.head.size());
    body->key = lands ? key : kNoLanding;
    body->channel = channel;
    body->record = channel->commit_unfinished();
    memory = lands ? place : kept + record.head.size();
  }
  incoming_.push_back(body);
  num_incoming_ = incoming_.size();
  post(body, memory);
  // An endpoint that has failed brings nothing more.
  if (!is_usable() && !body->request->is_over()) worker_->cancel(*body->request);
}

// Receives `body` to `memory`; null: nowhere.
void Lane::post(const std::shared_ptr<Incoming>& body, std::byte* memory) {
  if (memory == nullptr) {
    body->scratch = std::make_unique_for_overwrite<std::byte[]>(body->bytes);
    memory = body->scratch.get();
  }
  body->is_given_up = false;
  body->request = worker_->receive(
      body->tag, {memory, body->bytes}, [this, body](const UcxRequest& received) {
        const bool has_come = received.state() == UcxRequest::State::Done;
        if (!has_come && body->is_given_up) return;  // it is received elsewhere
        if (!has_come) return lose();
        if (body->channel != nullptr) body->channel->finish(body->record);
      });
}

void Lane::forget(LandingKey key, const Channel& channel) {
  if (num_incoming_.load(std::memory_order_acquire) == 0) return;
  const std::lock_guard lock(mutex_);
  drop_over();
  for (const auto& body : incoming_)
    if (body->key == key && body->channel.get() == &channel) divert(body);
}

// Takes the body's memory from UCX. What has not begun to come goes nowhere instead.
void Lane::divert(const std::shared_ptr<Incoming>& body) {
  const UcxRequestPtr request = body->request;
  body->is_given_up = true;
  worker_->cancel(*request);
  stop(*request);
  const bool has_come = request->state() == UcxRequest::State::Done;
  if (!has_come && !has_lost() && is_usable()) return post(body, nullptr);
  if (!has_come) lose();
}

void Lane::stop(const UcxRequest& request) {
  const auto is_over = [&] { return request.is_over(); };
  if (worker_->progress_until(is_over, kPatience)) return;
  lose();
  endpoint_->close();
  worker_->progress_until(is_over, kEndLimit);
}

void Lane::lose() {
  if (has_lost_.exchange(true) || is_closed_) return;
  on_trouble_();
}

void Lane::tend() {
  if (is_usable()) return;
  const std::lock_guard lock(mutex_);
  for (const auto& body : incoming_) worker_->cancel(*body->request);
}

void Lane::drop_over() {
  std::erase_if(incoming_, [](const auto& body) { return body->request->is_over(); });
  num_incoming_ = incoming_.size();
}

void Lane::close() {
  const std::lock_guard lock(mutex_);
  if (is_closed_.exchange(true)) return;
  if (endpoint_ != nullptr) endpoint_->close();
  for (const auto& body : incoming_) worker_->cancel(*body->request);
  for (const auto& body : incoming_)
    worker_->progress_until([&] { return body->request->is_over(); }, kEndLimit);
  drop_over();
}

}  // namespace allhands
