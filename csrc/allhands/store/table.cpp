#include "allhands/store/table.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include "allhands/base/error.hpp"
#include "allhands/store/protocol.hpp"

namespace allhands::store {
namespace {

// As std::stoll reads it, but no text may follow the number: blanks around it and a
// plus sign are accepted, and an empty value is 0.
std::int64_t to_number(const std::string& key, const std::string& text) {
  constexpr const char* kBlanks = " \t\n\v\f\r";
  if (text.empty()) return 0;
  const std::size_t first = std::min(text.find_first_not_of(kBlanks), text.size());
  const std::size_t last = std::max(first, text.find_last_not_of(kBlanks) + 1);
  const char* begin = text.data() + first;
  const char* const end = text.data() + last;
  if (end - begin > 1 && *begin == '+' && begin[1] != '-') ++begin;
  std::int64_t number = 0;
  const auto [stop, code] = std::from_chars(begin, end, number);
  if (code == std::errc() && stop == end) return number;
  constexpr std::size_t kShown = 40;
  throw Error(ErrorKind::Value, "add: the value of key '" + key +
                                    "' is not an int64: '" + text.substr(0, kShown) +
                                    (text.size() > kShown ? "..." : "") + "'");
}

}  // namespace

bool Table::contains(const std::string& key) const {
  return values_.contains(key) || queues_.contains(key);
}

Value Table::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : Value(found->second);
}

void Table::set(const std::string& key, std::string value) {
  note(Change::Kind::Set, key, value);
  // Always a new string, as the old one may be in a reply that is being sent.
  values_[key] = std::make_shared<std::string>(std::move(value));
}

std::int64_t Table::add(const std::string& key, std::int64_t amount) {
  const Value old = find(key);
  const std::int64_t before = old == nullptr ? 0 : to_number(key, *old);
  const auto after = static_cast<std::int64_t>(static_cast<std::uint64_t>(before) +
                                               static_cast<std::uint64_t>(amount));
  set(key, std::to_string(after));
  return after;
}

void Table::append(const std::string& key, const std::string& value) {
  const auto found = values_.find(key);
  if (found == values_.end()) return set(key, value);
  std::shared_ptr<std::string>& text = found->second;
  if (text->size() + value.size() > kMaxValueBytes)
    throw Error(ErrorKind::Value,
                "append to key '" + key + "': " + std::to_string(text->size()) + " + " +
                    std::to_string(value.size()) + " bytes are over the limit of " +
                    std::to_string(kMaxValueBytes));
  if (text.use_count() > 1)  // it is in a reply that is being sent
    text = std::make_shared<std::string>(*text);
  note(Change::Kind::Append, key, value);
  text->append(value);
}

Value Table::compare_set(const std::string& key, std::string expected,
                         std::string desired) {
  const Value current = find(key);
  const bool is_match = current == nullptr ? expected.empty() : *current == expected;
  if (is_match) {
    set(key, std::move(desired));
    return find(key);
  }
  if (current != nullptr) return current;
  return std::make_shared<const std::string>(std::move(expected));
}

bool Table::erase(const std::string& key) {
  if (values_.erase(key) == 0) return false;
  note(Change::Kind::Delete, key);
  return true;
}

std::vector<std::string> Table::keys() const {
  std::vector<std::string> keys;
  keys.reserve(values_.size());
  for (const auto& [key, value] : values_) keys.push_back(key);
  return keys;
}

void Table::push(const std::string& key, std::string value) {
  note(Change::Kind::Push, key, value);
  queues_[key].push_back(std::make_shared<const std::string>(std::move(value)));
}

Value Table::pop(const std::string& key) {
  const auto found = queues_.find(key);
  if (found == queues_.end()) return nullptr;
  note(Change::Kind::Pop, key);
  Value value = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) queues_.erase(found);
  return value;
}

std::size_t Table::queue_length(const std::string& key) const {
  const auto found = queues_.find(key);
  return found == queues_.end() ? 0 : found->second.size();
}

void Table::clear() {
  values_.clear();
  queues_.clear();
  changes_.clear();
}

void Table::repeat(Change change) {
  const struct Silence {
    explicit Silence(bool& noting) : is_noting(noting), before(noting) {
      noting = false;
    }
    ~Silence() { is_noting = before; }
    bool& is_noting;
    const bool before;
  } silence(is_noting_);
  switch (change.kind) {
    case Change::Kind::Set:
      return set(change.key, std::move(change.value));
    case Change::Kind::Append:
      return append(change.key, change.value);
    case Change::Kind::Delete:
      return static_cast<void>(erase(change.key));
    case Change::Kind::Push:
      return push(change.key, std::move(change.value));
    case Change::Kind::Pop:
      return static_cast<void>(pop(change.key));
  }
}

}  // namespace allhands::store
