// The data of a store: values by key, and queues by key. Nothing here waits. A queue
// and a value may share a key; a queue exists while it is not empty. A table can note
// its changes, for a log from which other tables repeat them. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace allhands::store {

// Shared, so that a reply that is being sent keeps its bytes while the key changes.
using Value = std::shared_ptr<const std::string>;

// One change of a table: all that another table needs to repeat it.
struct Change {
  // The numbers are part of FileStore's file format.
  enum class Kind : std::uint8_t { Set = 1, Append = 2, Delete = 3, Push = 4, Pop = 5 };
  Kind kind;
  std::string key;
  std::string value;  // empty if the kind needs no value
};

// Values by key, and queues by key.
class Table {
 public:
  // Whether there is a value, or a queue that is not empty.
  bool contains(const std::string& key) const;
  // Null if there is no value.
  Value find(const std::string& key) const;

  void set(const std::string& key, std::string value);
  // Adds `amount` to the text at `key`, as a number that wraps at 2^63; a missing key
  // counts as 0. Throws Error(Value), and changes nothing, if the text is no number.
  std::int64_t add(const std::string& key, std::int64_t amount);
  // Throws Error(Value) if the value would exceed the protocol's limit.
  void append(const std::string& key, const std::string& value);
  // Sets `desired` if the value is `expected`, or if there is no value and `expected`
  // is empty. Returns the value afterwards, or `expected` if there is none.
  Value compare_set(const std::string& key, std::string expected, std::string desired);
  bool erase(const std::string& key);  // false: there was no value
  std::size_t num_keys() const { return values_.size(); }
  std::vector<std::string> keys() const;

  void push(const std::string& key, std::string value);
  Value pop(const std::string& key);  // null if the queue is empty
  std::size_t queue_length(const std::string& key) const;

  void clear();  // not noted as a change
  // From now on every change is noted, until take_changes().
  void note_changes() { is_noting_ = true; }
  std::vector<Change> take_changes() { return std::exchange(changes_, {}); }
  void repeat(Change change);  // not noted as a change

 private:
  void note(Change::Kind kind, const std::string& key, const std::string& value = {}) {
    if (is_noting_) changes_.push_back({kind, key, value});
  }

  std::unordered_map<std::string, std::shared_ptr<std::string>> values_;
  std::unordered_map<std::string, std::deque<Value>> queues_;
  bool is_noting_ = false;
  std::vector<Change> changes_;
};

}  // namespace allhands::store
