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
  return problem.empty() && has_failed() ? "UCX has lost a message" : problem;
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
  drop_done();
  auto body = std::make_shared<Incoming>();
  body->number = next_++;
  body->bytes = record.body_bytes;
  if (channel != nullptr) {
    const Landed landed = {key, body->bytes};
    // Before the place is taken, so that forget() waits for what follows.
    num_incoming_ = incoming_.size() + 1;
    std::byte* const place = channel->take_place(landed);
    const bool lands = place != nullptr;
    std::byte* const kept =
        channel->reserve(record.head.size() + body->bytes, lands ? landed : Landed{});
    std::memcpy(kept, record.head.data(), record.head.size());
    body->key = lands ? key : kNoLanding;
    body->channel = channel;
    body->record = channel->commit_unfinished();
    body->place = lands ? place : kept + record.head.size();
  }
  incoming_.push_back(body);
  num_incoming_ = incoming_.size();
  if (!is_closed_) post(body);
}

// Receives `body` by UCX.
void Lane::post(const std::shared_ptr<Incoming>& body) {
  std::byte* memory = body->place;
  if (memory == nullptr) {
    body->scratch = std::make_unique_for_overwrite<std::byte[]>(body->bytes);
    memory = body->scratch.get();
  }
  body->is_given_up = false;
  body->request = worker_->receive(
      tag_of(incoming_tag_, body->number), {memory, body->bytes},
      [this, body](const UcxRequest& received) {
        const bool has_come = received.state() == UcxRequest::State::Done;
        if (!has_come && body->is_given_up) return;  // it is received elsewhere
        if (!has_come) return lose();                // it comes over the socket
        if (body->channel != nullptr) body->channel->finish(body->record);
      });
}

bool Lane::forget(LandingKey key, const Channel& channel) {
  if (num_incoming_.load(std::memory_order_acquire) == 0) return false;
  bool is_coming = false;
  const std::lock_guard lock(mutex_);
  drop_done();
  for (const auto& body : incoming_) {
    if (body->key != key || body->channel.get() != &channel) continue;
    body->place = nullptr;
    if (!is_closed_) divert(body);
    if (body == coming_) is_coming = true;
  }
  return is_coming;
}

// Takes the body's memory from UCX. What has not begun to come goes nowhere instead.
void Lane::divert(const std::shared_ptr<Incoming>& body) {
  const UcxRequestPtr request = body->request;
  body->is_given_up = true;
  worker_->cancel(*request);
  stop(*request);
  const bool has_come = request->state() == UcxRequest::State::Done;
  if (!has_come && !has_failed()) return post(body);
  if (!has_come) lose();
}

void Lane::stop(const UcxRequest& request) {
  const auto is_over = [&] { return request.is_over(); };
  if (worker_->progress_until(is_over, kPatience)) return;
  lose();
  if (endpoint_ != nullptr) endpoint_->close();
  worker_->progress_until(is_over, kEndLimit);
}

void Lane::lose() {
  if (has_lost_.exchange(true) || is_closed_) return;
  on_trouble_();
}

// Forgets what UCX has brought.
void Lane::drop_done() {
  std::erase_if(incoming_, [](const auto& body) {
    return body->request != nullptr &&
           body->request->state() == UcxRequest::State::Done;
  });
  num_incoming_ = incoming_.size();
}

void Lane::close() {
  const std::lock_guard lock(mutex_);
  if (is_closed_.exchange(true)) return;
  if (endpoint_ != nullptr) endpoint_->close();
  for (const auto& body : incoming_) worker_->cancel(*body->request);
  for (const auto& body : incoming_)
    worker_->progress_until([&] { return body->request->is_over(); }, kEndLimit);
  drop_done();
}

std::byte* Lane::begin(std::uint64_t number, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(
      incoming_, [=](const auto& body) { return body->number == number; });
  if (!is_closed_ || number >= next_ ||
      (found != incoming_.end() && (*found)->bytes != bytes))
    throw LinkError("body " + std::to_string(number) + " of " + std::to_string(bytes) +
                    " bytes comes over the connection, and makes no sense there");
  if (found == incoming_.end()) return nullptr;
  coming_ = *found;
  return coming_->place;
}

void Lane::end() {
  const std::lock_guard lock(mutex_);
  if (coming_ == nullptr) return;
  if (coming_->channel != nullptr) coming_->channel->finish(coming_->record);
  std::erase(incoming_, std::exchange(coming_, nullptr));
  num_incoming_ = incoming_.size();
}

bool Lane::is_coming_nowhere() {
  const std::lock_guard lock(mutex_);
  return coming_ != nullptr && coming_->place == nullptr;
}

}  // namespace allhands
