// Lines that the core asks for, on stderr.
#pragma once

#include <unistd.h>

#include <functional>
#include <string>

namespace allhands::python {

// A function that prints a line with this beginning; nothing if `beginning` is empty.
// Each line is one write, so that lines of several ranks do not mix. Python's stderr
// would need the GIL, which a thread that waits does not hold.
inline std::function<void(const std::string&)> stderr_lines(std::string beginning) {
  if (beginning.empty()) return nullptr;
  return [beginning = std::move(beginning)](const std::string& text) {
    const std::string line = beginning + text + "\n";
    [[maybe_unused]] const auto written =
        ::write(STDERR_FILENO, line.data(), line.size());
  };
}

}  // namespace allhands::python
