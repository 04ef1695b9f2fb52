#include "allhands/store/service.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "allhands/base/error.hpp"

namespace allhands::store {
namespace {

constexpr std::size_t kAny = kMaxFields;

struct Shape {
  std::size_t min_fields, max_fields;
  std::size_t key_stride;  // the distance of fields that are keys, from the first one
};

Shape shape_of(Op op) {
  switch (op) {
    case Op::Set:
    case Op::Append:
    case Op::QueuePush:
      return {2, 2, 2};
    case Op::CompareSet:
      return {3, 3, 3};
    case Op::Get:
    case Op::Add:
    case Op::DeleteKey:
    case Op::QueuePop:
    case Op::QueueLen:
    case Op::Barrier:
    case Op::Survey:
      return {1, 1, 1};
    case Op::Check:
    case Op::Wait:
    case Op::MultiGet:
      return {0, kAny, 1};
    case Op::MultiSet:
      return {0, kAny, 2};
    case Op::NumKeys:
    case Op::ListKeys:
    case Op::Join:
    case Op::AwaitWorkers:
    case Op::Cancel:
      return {0, 0, 1};
    case Op::Will:
      return {0, 2, 2};
    case Op::Relayed:
    case Op::Left:
      break;
  }
  throw Error(ErrorKind::Network, "unknown request");
}

void check_shape(Op op, const Message& request) {
  const Shape shape = shape_of(op);
  const std::size_t count = request.fields.size();
  if (count < shape.min_fields || count > shape.max_fields ||
      ((op == Op::MultiSet || op == Op::Will) && count % 2 != 0))
    throw Error(ErrorKind::Network, "malformed request");
  for (std::size_t i = 0; i < count; i += shape.key_stride)
    if (request.fields[i].size() > kMaxKeyBytes)
      throw Error(ErrorKind::Value,
                  "a key of " + std::to_string(request.fields[i].size()) +
                      " bytes: at most " + std::to_string(kMaxKeyBytes));
}

Reply with_number(std::size_t number) {
  return {Status::Ok, static_cast<std::int64_t>(number), {}};
}

Reply with_keys(const std::vector<std::string>& keys) {
  Reply reply;
  for (const std::string& key : keys)
    reply.fields.push_back(std::make_shared<const std::string>(key));
  return reply;
}

Reply survey(const Table& table, const std::string& prefix, std::int64_t count) {
  if (count < 0 || count > static_cast<std::int64_t>(kMaxFields))
    return invalid("a survey of " + std::to_string(count) + " keys: from 0 to " +
                   std::to_string(kMaxFields) + " are possible");
  std::string found;
  found.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const Value value = table.find(prefix + std::to_string(i));
    const Found what = value == nullptr ? Found::Nothing
                       : value->empty() ? Found::EmptyValue
                                        : Found::SomeValue;
    found.push_back(static_cast<char>(what));
  }
  return {Status::Ok, 0, {std::make_shared<const std::string>(std::move(found))}};
}

Op op_of(const Message& request) { return static_cast<Op>(request.code); }

bool is_waiting(const Message& request) {
  const Op op = op_of(request);
  return op == Op::Get || op == Op::Wait || op == Op::MultiGet ||
         (op == Op::QueuePop && request.number != 0);
}

}  // namespace

Reply invalid(const std::string& message) {
  return {Status::InvalidValue, 0, {std::make_shared<const std::string>(message)}};
}

void Service::handle(ClientId client, Message request) {
  const Op op = op_of(request);
  if (op == Op::Cancel) return cancel(client);
  if (parked_.contains(client))
    throw Error(ErrorKind::Network, "a request while another one waits");
  try {
    check_shape(op, request);
    if (is_waiting(request)) return wait_for_keys(client, std::move(request), 0);
    if (op == Op::Barrier) return arrive_at_barrier(client, std::move(request));
    if (op == Op::AwaitWorkers) return await_workers(client, std::move(request));
    answer_(client, execute(client, op, request));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Value) throw;
    return answer_(client, invalid(error.what()));
  }
  // The request still has its keys. Clients that wait for one are answered after the
  // writer.
  if (op == Op::Set || op == Op::Add || op == Op::Append || op == Op::CompareSet ||
      op == Op::QueuePush)
    announce(request.fields[0]);
  if (op == Op::MultiSet)
    for (std::size_t i = 0; i < request.fields.size(); i += 2)
      announce(request.fields[i]);
  if (op == Op::Join && !worker_lines_.empty()) {
    const Line line = worker_lines_[""];
    for (const ClientId waiting : line) await_workers(waiting, unpark(waiting).request);
  }
}

// Handles requests that are answered at once.
Reply Service::execute(ClientId client, Op op, Message& request) {
  std::vector<std::string>& f = request.fields;
  switch (op) {
    case Op::Set:
      table_.set(f[0], std::move(f[1]));
      return {};
    case Op::Add:
      return {Status::Ok, table_.add(f[0], request.number), {}};
    case Op::Append:
      table_.append(f[0], f[1]);
      return {};
    case Op::Check:
      return with_number(
          std::all_of(f.begin(), f.end(),
                      [this](const std::string& key) { return table_.contains(key); }));
    case Op::CompareSet:
      return {
          Status::Ok, 0, {table_.compare_set(f[0], std::move(f[1]), std::move(f[2]))}};
    case Op::DeleteKey:
      return with_number(table_.erase(f[0]));
    case Op::NumKeys:
      return with_number(table_.num_keys() + (are_workers_a_key_ ? 1 : 0));
    case Op::ListKeys:
      return with_keys(table_.keys());
    case Op::MultiSet:
      for (std::size_t i = 0; i < f.size(); i += 2)
        table_.set(f[i], std::move(f[i + 1]));
      return {};
    case Op::QueuePush:
      table_.push(f[0], std::move(f[1]));
      return {};
    case Op::QueuePop: {
      // What is handed to a client that has gone is lost for the others.
      const Value value = is_there_(client) ? table_.pop(f[0]) : nullptr;
      if (value == nullptr) return {Status::QueueEmpty, 0, {}};
      return {Status::Ok, 0, {value}};
    }
    case Op::QueueLen:
      return with_number(table_.queue_length(f[0]));
    case Op::Join:
      are_workers_a_key_ |= request.number != 0;
      return {Status::Ok, ++num_workers_, {}};
    case Op::Survey:
      return survey(table_, f[0], request.number);
    case Op::Will:
      wills_.erase(client);
      if (f.empty()) return {};
      table_.erase(f[0]);
      wills_.emplace(client, Will{std::move(f[0]), std::move(f[1])});
      return {};
    default:
      throw Error(ErrorKind::Network, "unknown request");
  }
}

// Checks the keys in order and waits at the first one that is missing. So each key is
// checked once per request, however many others come. Wait needs each key to have been
// there; the others need all of them at the end.
void Service::wait_for_keys(ClientId client, Message request, std::size_t num_seen) {
  const std::vector<std::string>& keys = request.fields;
  const Op op = op_of(request);
  const auto is_missing = [this, op](const std::string& key) {
    if (op == Op::Wait) return !table_.contains(key);
    if (op == Op::QueuePop) return table_.queue_length(key) == 0;
    return table_.find(key) == nullptr;
  };
  while (num_seen < keys.size() && !is_missing(keys[num_seen])) ++num_seen;
  // One key may have been deleted since.
  if (num_seen == keys.size() && op == Op::MultiGet)
    num_seen = static_cast<std::size_t>(
        std::find_if(keys.begin(), keys.end(), is_missing) - keys.begin());
  if (num_seen < keys.size()) {
    const std::string name = keys[num_seen];
    return park(client, std::move(request), num_seen, key_lines_, name);
  }
  if (op == Op::QueuePop) return answer_(client, execute(client, op, request));
  Reply reply;
  if (op == Op::Get || op == Op::MultiGet)
    for (const std::string& key : keys) reply.fields.push_back(table_.find(key));
  answer_(client, std::move(reply));
}

// `key` has something now: the clients that wait for it check again, in order of
// arrival.
void Service::announce(const std::string& key) {
  const auto found = key_lines_.find(key);
  if (found == key_lines_.end()) return;
  const Line line = found->second;
  for (const ClientId client : line) {
    Parked parked = unpark(client);
    wait_for_keys(client, std::move(parked.request), parked.num_seen);
  }
}

void Service::arrive_at_barrier(ClientId client, Message request) {
  const std::string key = request.fields[0];
  const std::int64_t size = request.number;
  const auto found = barrier_lines_.find(key);
  const bool is_first = found == barrier_lines_.end();
  if (size < 1)
    throw Error(ErrorKind::Value, "barrier '" + key + "' of " + std::to_string(size) +
                                      " clients: at least 1 is needed");
  if (!is_first) {
    const std::int64_t others = parked_.at(found->second.front()).request.number;
    if (size != others)
      throw Error(ErrorKind::Value, "barrier '" + key + "': this client waits for " +
                                        std::to_string(size) + ", others wait for " +
                                        std::to_string(others));
  }
  park(client, std::move(request), 0, barrier_lines_, key);
  const Line& line = barrier_lines_[key];
  if (static_cast<std::int64_t>(line.size()) == size) release(line);
}

void Service::await_workers(ClientId client, Message request) {
  if (num_workers_ < request.number)
    park(client, std::move(request), 0, worker_lines_, "");
  else
    answer_(client, {Status::Ok, num_workers_, {}});
}

void Service::release(Line line) {
  for (const ClientId client : line) {
    unpark(client);
    answer_(client, {});
  }
}

void Service::cancel(ClientId client) {
  if (!parked_.contains(client)) return;  // it crossed the answer
  unpark(client);
  answer_(client, {Status::Cancelled, num_workers_, {}});
}

void Service::leave(ClientId client) {
  if (parked_.contains(client)) unpark(client);
  auto node = wills_.extract(client);
  if (node.empty()) return;
  Will& will = node.mapped();
  table_.set(will.key, std::move(will.value));
  announce(will.key);
}

void Service::park(ClientId client, Message request, std::size_t num_seen, Lines& lines,
                   const std::string& name) {
  Line& line = lines[name];
  const Line::iterator place = line.insert(line.end(), client);
  parked_.emplace(client, Parked{std::move(request), num_seen, &lines, name, place});
}

Service::Parked Service::unpark(ClientId client) {
  auto node = parked_.extract(client);
  Parked parked = std::move(node.mapped());
  const auto found = parked.lines->find(parked.name);
  found->second.erase(parked.place);
  if (found->second.empty()) parked.lines->erase(found);
  return parked;
}

}  // namespace allhands::store
