// The name of a host, in memory that copies share: of many ranks, most have the same.
#pragma once

#include <memory>
#include <string>
#include <utility>

namespace allhands {

class HostName {
 public:
  HostName() = default;
  HostName(std::string text)  // NOLINT: it is one
      : text_(std::make_shared<const std::string>(std::move(text))) {}

  const std::string& text() const {
    static const std::string kNone;
    return text_ ? *text_ : kNone;
  }
  friend bool operator==(const HostName& a, const HostName& b) {
    return a.text_ == b.text_ || a.text() == b.text();
  }

 private:
  std::shared_ptr<const std::string> text_;  // null: empty
};

}  // namespace allhands
