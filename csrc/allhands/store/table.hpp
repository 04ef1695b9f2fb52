// What a store holds: values by key, and queues by key. Data only; nothing here waits.
// A queue and a value may share a key; a queue is there while it is not empty.
// It can note its changes, for a log from which other tables repeat them.
// Not thread-safe.
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

// Shared, so that a reply being sent keeps its bytes while the key changes.
using Value = std::shared_ptr<const std::string>;

// One change of a table: all that another table needs to repeat it.
struct Change {
  // The numbers are part of FileStore's file format.
  enum class Kind : std::uint8_t { Set = 1, Append = 2, Delete = 3, Push = 4, Pop = 5 };
  Kind kind;
  std::string key;
  std::string value;  // empty where the kind needs none
};

// Values by key, and queues by key.
class Table {
 public:
  // A value, or a queue with something in it.
  bool contains(const std::string& key) const;
  // Null where there is none.
  Value find(const std::string& key) const;

  void set(const std::string& key, std::string value);
  // The text at `key`, as a number, plus `amount`, wrapping at 2^63; nothing counts
  // as 0. Throws Error(Value) where the text is no number, and changes nothing.
  std::int64_t add(const std::string& key, std::int64_t amount);
  // Throws Error(Value) where the value would grow over the protocol's limit.
  void append(const std::string& key, const std::string& value);
  // Sets `desired` where the value is `expected`, or where there is none and `expected`
  // is empty. Returns what is there afterwards, `expected` where that is nothing.
  Value compare_set(const std::string& key, std::string expected, std::string desired);
  bool erase(const std::string& key);  // false: there was no value
  std::size_t num_keys() const { return values_.size(); }
  std::vector<std::string> keys() const;

  void push(const std::string& key, std::string value);
  Value pop(const std::string& key);  // null where the queue is empty
  std::size_t queue_length(const std::string& key) const;

  void clear();  // is not noted
  // From now on every change is noted, until take_changes().
  void note_changes() { is_noting_ = true; }
  std::vector<Change> take_changes() { return std::exchange(changes_, {}); }
  void repeat(Change change);  // is not noted

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
