// The store as a program sees it: torch.distributed.Store's operations on a server.
//
// Thread-safe. Each call has a connection to itself: the first one or, while calls of
// other threads use that, another one, which is made then and kept. So a get() that
// waits holds up no other call. A child of fork() makes connections of its own.
//
// Errors: Network if the server is gone, in this call and all later ones; Store if the
// deadline passed, after which the client works as before; Value for mistakes of the
// caller;
// Interrupted.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "allhands/base/wait.hpp"
#include "allhands/store/link.hpp"

namespace allhands::store {

class Client;

// The server's answer. It keeps its connection until it is destroyed, so that values
// are read where they were received. It must not outlive its client.
class ClientReply {
 public:
  ClientReply(Client& client, std::unique_ptr<Link> link, Message& message)
      : client_(&client), link_(std::move(link)), message_(&message) {}
  ClientReply(ClientReply&&) = default;
  ~ClientReply();

  Status status() const { return static_cast<Status>(message_->code); }
  std::int64_t number() const { return message_->number; }
  std::vector<std::string>& fields() { return message_->fields; }
  // The only field.
  std::string_view value() const;

 private:
  Client* client_;
  std::unique_ptr<Link> link_;
  Message* message_;
};

// Makes the server set a key when this process ends or this object is destroyed. It has
// a connection of its own; children that are forked meanwhile have it too, and it ends
// with the last of them.
class LastWill {
 public:
  LastWill(const Target& target, std::string_view key, std::string_view value,
           const Deadline& deadline);

  // Cancels the will. Does nothing in a forked child.
  void withdraw();

 private:
  const pid_t owner_;
  Link link_;
};

// A store on a server, as a program sees it.
class Client {
 public:
  using Keys = std::vector<std::string_view>;
  using Reply = ClientReply;

  // Connects; see Link.
  Client(Target target, const Deadline& deadline);

  // This process's address on its first connection to the server.
  const std::string& own_address() const { return own_address_; }

  void set(std::string_view key, std::string_view value, const Deadline& deadline);
  Reply get(std::string_view key, const Deadline& deadline);
  std::int64_t add(std::string_view key, std::int64_t amount, const Deadline& deadline);
  void append(std::string_view key, std::string_view value, const Deadline& deadline);
  bool check(const Keys& keys, const Deadline& deadline);
  void wait(const Keys& keys, const Deadline& deadline);
  // What each of the keys prefix0 to prefix<count - 1> has now: one Found for each.
  std::string survey(std::string_view prefix, std::int64_t count,
                     const Deadline& deadline);
  Reply compare_set(std::string_view key, std::string_view expected,
                    std::string_view desired, const Deadline& deadline);
  bool delete_key(std::string_view key, const Deadline& deadline);
  std::int64_t num_keys(const Deadline& deadline);
  std::vector<std::string> list_keys(const Deadline& deadline);
  Reply multi_get(const Keys& keys, const Deadline& deadline);
  // `fields`: key, value, key, value, ...
  void multi_set(const Keys& fields, const Deadline& deadline);
  void queue_push(std::string_view key, std::string_view value,
                  const Deadline& deadline);
  Reply queue_pop(std::string_view key, bool block, const Deadline& deadline);
  std::int64_t queue_len(std::string_view key, const Deadline& deadline);
  void barrier(std::string_view key, std::int64_t size, const Deadline& deadline);

  // Deletes `key` now. The server sets it to `value` when this process ends, unless the
  // will was withdrawn. The will must not outlive this client.
  std::unique_ptr<LastWill> leave_will(std::string_view key, std::string_view value,
                                       const Deadline& deadline);

  // Reports that this worker is there; returns how many workers are. If `is_key`, one
  // key more is in num_keys() from now on, which is that of torch's TCPStore for this.
  std::int64_t join(bool is_key, const Deadline& deadline);
  // Waits until `count` have joined.
  void await_workers(std::int64_t count, const Deadline& deadline);

 private:
  friend class ClientReply;

  Reply call(Op op, std::int64_t number, const Keys& fields, const Deadline& deadline);
  // As call(), with torch's "wait timeout" if the deadline passed.
  Reply call_in_time(Op op, std::int64_t number, const Keys& fields, const Keys& keys,
                     const Deadline& deadline);

  std::unique_ptr<Link> take_link(const Deadline& deadline);
  void give_back(std::unique_ptr<Link> link);

  Target target_;
  std::string own_address_;
  std::atomic<bool> is_lost_ = false;
  std::mutex mutex_;  // guards what follows; held only for moments
  pid_t owner_;       // the process that the idle links belong to
  std::vector<std::unique_ptr<Link>> idle_;
};

}  // namespace allhands::store
