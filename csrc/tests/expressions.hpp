// Values that remember how they came about: elements of participants' inputs, and
// reductions of values. Two values are equal only where any operation, however little
// associative, would give the same bits.
#pragma once

#include <map>
#include <vector>

namespace allhands::testing {

using Value = int;  // 0: never written

class Expressions {
 public:
  Value leaf(int participant, std::size_t element) {
    return value_of({-1 - participant, static_cast<int>(element)});
  }
  Value reduced(const std::vector<Value>& operands) {
    return operands.size() == 1 ? operands.front() : value_of(operands);
  }

  bool is_leaf(Value value) const { return node(value).front() < 0; }
  const std::vector<int>& operands(Value value) const { return node(value); }
  int participant(Value leaf) const { return -1 - node(leaf)[0]; }
  std::size_t element(Value leaf) const {
    return static_cast<std::size_t>(node(leaf)[1]);
  }

  // The leaves from left to right.
  std::vector<Value> leaves(Value value) const {
    if (is_leaf(value)) return {value};
    std::vector<Value> all;
    for (const Value operand : operands(value)) {
      const std::vector<Value> below = leaves(operand);
      all.insert(all.end(), below.begin(), below.end());
    }
    return all;
  }

  // The same reductions of other elements: leaf i of `value` is leaf(i, element).
  Value of_element(Value value, std::size_t element) {
    if (is_leaf(value)) return leaf(participant(value), element);
    std::vector<Value> others;
    for (const Value operand : std::vector<Value>(operands(value)))
      others.push_back(of_element(operand, element));
    return reduced(others);
  }

 private:
  Value value_of(std::vector<int> node) {
    const auto [found, is_new] =
        numbers_.try_emplace(node, static_cast<Value>(nodes_.size() + 1));
    if (is_new) nodes_.push_back(std::move(node));
    return found->second;
  }
  const std::vector<int>& node(Value value) const {
    return nodes_.at(static_cast<std::size_t>(value - 1));
  }

  std::map<std::vector<int>, Value> numbers_;
  std::vector<std::vector<int>> nodes_;
};

}  // namespace allhands::testing
