#include <chrono>

#include "allhands/base/deadline.hpp"
#include "allhands/base/dtype.hpp"
#include "allhands/base/error.hpp"
#include "allhands/base/seconds.hpp"
#include "check.hpp"

using allhands::Deadline;
using allhands::DType;
using allhands::Error;
using allhands::ErrorKind;

int main() {
  CHECK(size_of(DType::Complex128) == 16);
  CHECK(is_integral(DType::Bool) && !is_integral(DType::Float16));
  CHECK(Deadline::after(std::chrono::nanoseconds(0)).is_expired());
  CHECK(!Deadline::after(std::chrono::nanoseconds::max()).is_expired());
  const auto fail = [] { throw Error(ErrorKind::RankFailed, "rank 3", {3}); };
  CHECK_THROWS(fail(), Error);

  // Two digits where they matter.
  CHECK(allhands::seconds(std::chrono::milliseconds(60)) == "0.06 s");
  CHECK(allhands::seconds(std::chrono::milliseconds(9'994)) == "9.99 s");
  CHECK(allhands::seconds(std::chrono::seconds(10)) == "10 s");
  CHECK(allhands::seconds(std::chrono::minutes(30)) == "1800 s");
}
