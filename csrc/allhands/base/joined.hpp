// Lists as error messages write them: "0, 1, 5".
#pragma once

#include <string>

namespace allhands {

// The texts of all `items`, with commas between them.
template <class Items, class ToText>
std::string joined(const Items& items, ToText text_of) {
  std::string text;
  for (const auto& item : items) text += (text.empty() ? "" : ", ") + text_of(item);
  return text;
}

template <class Numbers>
std::string joined(const Numbers& numbers) {
  return joined(numbers, [](auto number) { return std::to_string(number); });
}

}  // namespace allhands
