// The store's behaviour, without sockets: it takes requests and gives replies. A
// request that must wait is parked until another client's request lets it go on.
// protocol.hpp has the rules. Not thread-safe; owned by the server's one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "allhands/store/message.hpp"
#include "allhands/store/protocol.hpp"
#include "allhands/store/table.hpp"

namespace allhands::store {

// The answer to one request, for the client that sent it.
struct Reply {
  Status status = Status::Ok;
  std::int64_t number = 0;
  std::vector<Value> fields;
};

// The answer to a request with a mistake of the caller.
Reply invalid(const std::string& message);

// Carries out requests on a table, and parks those that must wait.
class Service {
 public:
  // Sockets, from 0 up; guests of relays have numbers below 0.
  using ClientId = std::int64_t;
  // Called once per request, possibly during another client's request. It must not call
  // the service.
  using Answer = std::function<void(ClientId, Reply)>;
  // Whether a client is still there to take what it has asked for. The kernel may know
  // of its end before the service does.
  using IsThere = std::function<bool(ClientId)>;

  Service(Answer answer, IsThere is_there)
      : answer_(std::move(answer)), is_there_(std::move(is_there)) {}

  // Throws Error(Network) for what no client of ours sends; then drop the connection.
  void handle(ClientId client, Message request);
  // The connection is gone: forgets what it waits for, and carries out its last will.
  void leave(ClientId client);

 private:
  // Clients that wait for the same thing, in order of arrival.
  using Line = std::list<ClientId>;
  using Lines = std::unordered_map<std::string, Line>;
  struct Parked {
    Message request;
    std::size_t num_seen;  // number of fields known to be there
    Lines* lines;
    std::string name;  // name of the line in `lines`
    Line::iterator place;
  };

  Reply execute(ClientId client, Op op, Message& request);
  void wait_for_keys(ClientId client, Message request, std::size_t num_seen);
  void arrive_at_barrier(ClientId client, Message request);
  void await_workers(ClientId client, Message request);
  void cancel(ClientId client);
  void announce(const std::string& key);
  void release(Line line);  // takes a copy, as the original is emptied meanwhile

  void park(ClientId client, Message request, std::size_t num_seen, Lines& lines,
            const std::string& name);
  Parked unpark(ClientId client);

  struct Will {
    std::string key, value;
  };

  Answer answer_;
  IsThere is_there_;
  Table table_;
  std::unordered_map<ClientId, Will> wills_;
  std::int64_t num_workers_ = 0;
  bool are_workers_a_key_ = false;  // counted by NumKeys
  std::unordered_map<ClientId, Parked> parked_;
  Lines key_lines_;      // by the key that is missing
  Lines barrier_lines_;  // by the barrier's key
  Lines worker_lines_;   // one, without a name
};

}  // namespace allhands::store
