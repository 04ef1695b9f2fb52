#include "allhands/kernels/reduce.hpp"

#include <cstdint>
#include <vector>

#include "allhands/base/error.hpp"
#include "check.hpp"

using allhands::DType;
using allhands::Error;
using allhands::ErrorKind;
using allhands::ReduceOp;

namespace {

template <class T>
std::vector<T> reduced(DType dtype, ReduceOp op, std::vector<std::vector<T>> sources,
                       std::vector<double> factors = {}) {
  std::vector<const void*> pointers;
  for (const std::vector<T>& source : sources) pointers.push_back(source.data());
  std::vector<T> result(sources[0].size());
  allhands::reduce(dtype, op, result.data(), pointers.data(),
                   static_cast<int>(sources.size()), result.size(), factors.data());
  return result;
}

void test_what_the_documentation_promises() {
  using F = std::vector<float>;
  CHECK((reduced<float>(DType::Float32, ReduceOp::Sum, {{1, 2}, {3, 4}}) == F{4, 6}));
  const std::uint16_t k40000 = 0x78e2, k26672 = 0x7683, k256 = 0x4380, k258 = 0x4381,
                      k1 = 0x3f80;
  CHECK(reduced<std::uint16_t>(DType::Float16, ReduceOp::Avg, {{k40000}, {k40000}, {0}})
            .at(0) == k26672);
  CHECK(reduced<std::uint16_t>(DType::BFloat16, ReduceOp::Sum, {{k256}, {k1}, {k1}})
            .at(0) == k258);
}

}  // namespace

int main() { test_what_the_documentation_promises(); }
