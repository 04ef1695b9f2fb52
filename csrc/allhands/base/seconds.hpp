// Durations as error messages write them: "0.50 s", "30 s".
#pragma once

#include <string>

#include "allhands/base/deadline.hpp"

namespace allhands {

std::string seconds(Deadline::Duration duration);

}  // namespace allhands
