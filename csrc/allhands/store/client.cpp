#include "allhands/store/client.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "allhands/base/error.hpp"
#include "allhands/base/seconds.hpp"
#include "allhands/store/protocol.hpp"

namespace allhands::store {
namespace {

// The number of idle connections kept for later calls; calls of more threads at a time
// are rare.
constexpr std::size_t kMaxIdle = 8;
constexpr Deadline::Duration kConnectPatience = std::chrono::seconds(1);

std::string limit_text(const Deadline& deadline) {
  const auto limit =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline.limit());
  return std::to_string(limit.count()) + "ms";
}

std::string keys_text(const Client::Keys& keys) {
  constexpr std::size_t kShown = 64;
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, keys.size()); ++i)
    text.append(i > 0 ? ", /" : "/").append(keys[i]);
  if (keys.size() > kShown)
    text += " and " + std::to_string(keys.size() - kShown) + " more";
  return text;
}

void check_sizes(const Client::Keys& fields) {
  for (const std::string_view field : fields)
    if (field.size() > kMaxValueBytes)
      throw Error(ErrorKind::Value,
                  "store: a value of " + std::to_string(field.size()) +
                      " bytes: at most " + std::to_string(kMaxValueBytes));
}

}  // namespace

ClientReply::~ClientReply() {
  if (link_ != nullptr) client_->give_back(std::move(link_));
}

std::string_view ClientReply::value() const {
  if (message_->fields.empty())
    throw Error(ErrorKind::Network, "the store server sent a malformed reply");
  return message_->fields[0];
}

Client::Client(Target target, const Deadline& deadline)
    : target_(std::move(target)), owner_(::getpid()) {
  auto link = std::make_unique<Link>(target_, deadline);
  target_.identity = link->server_identity();
  own_address_ = link->own_address();
  idle_.push_back(std::move(link));
}

std::unique_ptr<Link> Client::take_link(const Deadline& deadline) {
  {
    const std::scoped_lock lock(mutex_);
    if (is_lost_)
      throw Error(ErrorKind::Network, "the store server at " + target_.where() +
                                          " was lost in an earlier call");
    // They are the parent's, which goes on using them.
    if (owner_ != ::getpid()) idle_.clear();
    owner_ = ::getpid();
    if (!idle_.empty()) {
      std::unique_ptr<Link> link = std::move(idle_.back());
      idle_.pop_back();
      return link;
    }
  }
  // The first answer gets a moment, however short the call's own limit is.
  return std::make_unique<Link>(
      target_, Deadline::after(std::max(kConnectPatience, deadline.remaining())),
      &is_lost_);
}

void Client::give_back(std::unique_ptr<Link> link) {
  link->rest();
  const std::scoped_lock lock(mutex_);
  if (!link->is_spent() && idle_.size() < kMaxIdle) idle_.push_back(std::move(link));
}

Client::Reply Client::call(Op op, std::int64_t number, const Keys& fields,
                           const Deadline& deadline) {
  check_sizes(fields);
  std::unique_ptr<Link> link = take_link(deadline);
  try {
    Message& message = link->exchange(op, number, fields, deadline);
    Reply reply(*this, std::move(link), message);
    if (reply.status() == Status::InvalidValue)
      throw Error(ErrorKind::Value, std::string(reply.value()));
    return reply;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::Network) is_lost_ = true;
    throw;
  }
}

Client::Reply Client::call_in_time(Op op, std::int64_t number, const Keys& fields,
                                   const Keys& keys, const Deadline& deadline) {
  Reply reply = call(op, number, fields, deadline);
  if (reply.status() == Status::Cancelled)
    throw Error(ErrorKind::Store, "wait timeout after " + limit_text(deadline) +
                                      ", keys: " + keys_text(keys));
  return reply;
}

void Client::set(std::string_view key, std::string_view value,
                 const Deadline& deadline) {
  call_in_time(Op::Set, 0, {key, value}, {key}, deadline);
}

Client::Reply Client::get(std::string_view key, const Deadline& deadline) {
  return call_in_time(Op::Get, 0, {key}, {key}, deadline);
}

std::int64_t Client::add(std::string_view key, std::int64_t amount,
                         const Deadline& deadline) {
  return call_in_time(Op::Add, amount, {key}, {key}, deadline).number();
}

void Client::append(std::string_view key, std::string_view value,
                    const Deadline& deadline) {
  call_in_time(Op::Append, 0, {key, value}, {key}, deadline);
}

bool Client::check(const Keys& keys, const Deadline& deadline) {
  return call_in_time(Op::Check, 0, keys, keys, deadline).number() != 0;
}

void Client::wait(const Keys& keys, const Deadline& deadline) {
  call_in_time(Op::Wait, 0, keys, keys, deadline);
}

std::string Client::survey(std::string_view prefix, std::int64_t count,
                           const Deadline& deadline) {
  return std::string(
      call_in_time(Op::Survey, count, {prefix}, {prefix}, deadline).value());
}

Client::Reply Client::compare_set(std::string_view key, std::string_view expected,
                                  std::string_view desired, const Deadline& deadline) {
  return call_in_time(Op::CompareSet, 0, {key, expected, desired}, {key}, deadline);
}

bool Client::delete_key(std::string_view key, const Deadline& deadline) {
  return call_in_time(Op::DeleteKey, 0, {key}, {key}, deadline).number() != 0;
}

std::int64_t Client::num_keys(const Deadline& deadline) {
  return call_in_time(Op::NumKeys, 0, {}, {}, deadline).number();
}

std::vector<std::string> Client::list_keys(const Deadline& deadline) {
  return std::move(call_in_time(Op::ListKeys, 0, {}, {}, deadline).fields());
}

Client::Reply Client::multi_get(const Keys& keys, const Deadline& deadline) {
  return call_in_time(Op::MultiGet, 0, keys, keys, deadline);
}

void Client::multi_set(const Keys& fields, const Deadline& deadline) {
  Keys keys;
  for (std::size_t i = 0; i < fields.size(); i += 2) keys.push_back(fields[i]);
  call_in_time(Op::MultiSet, 0, fields, keys, deadline);
}

void Client::queue_push(std::string_view key, std::string_view value,
                        const Deadline& deadline) {
  call_in_time(Op::QueuePush, 0, {key, value}, {key}, deadline);
}

Client::Reply Client::queue_pop(std::string_view key, bool block,
                                const Deadline& deadline) {
  Reply reply = call_in_time(Op::QueuePop, block ? 1 : 0, {key}, {key}, deadline);
  if (reply.status() == Status::QueueEmpty)
    throw Error(ErrorKind::QueueEmpty, "queue is empty, key: " + std::string(key));
  return reply;
}

std::int64_t Client::queue_len(std::string_view key, const Deadline& deadline) {
  return call_in_time(Op::QueueLen, 0, {key}, {key}, deadline).number();
}

void Client::barrier(std::string_view key, std::int64_t size,
                     const Deadline& deadline) {
  if (call(Op::Barrier, size, {key}, deadline).status() == Status::Cancelled)
    throw Error(ErrorKind::Store, "barrier timeout after " + limit_text(deadline) +
                                      ", key: " + std::string(key));
}

LastWill::LastWill(const Target& target, std::string_view key, std::string_view value,
                   const Deadline& deadline)
    : owner_(::getpid()), link_(target, deadline) {
  const Message& reply = link_.exchange(Op::Will, 0, {key, value}, deadline);
  if (static_cast<Status>(reply.code) != Status::Ok)
    throw Error(ErrorKind::Store, "wait timeout after " + limit_text(deadline) +
                                      ", keys: " + keys_text({key}));
}

void LastWill::withdraw() {
  if (owner_ == ::getpid() && !link_.is_spent()) link_.send_last(Op::Will);
}

std::unique_ptr<LastWill> Client::leave_will(std::string_view key,
                                             std::string_view value,
                                             const Deadline& deadline) {
  return std::make_unique<LastWill>(target_, key, value, deadline);
}

std::int64_t Client::join(bool is_key, const Deadline& deadline) {
  return call_in_time(Op::Join, is_key ? 1 : 0, {}, {}, deadline).number();
}

void Client::await_workers(std::int64_t count, const Deadline& deadline) {
  const Reply reply = call(Op::AwaitWorkers, count, {}, deadline);
  if (reply.status() != Status::Cancelled) return;
  throw Error(ErrorKind::Store, "Timed out after " + seconds(deadline.limit()) +
                                    " waiting for clients. " +
                                    std::to_string(reply.number()) + "/" +
                                    std::to_string(count) + " clients joined.");
}

}  // namespace allhands::store
