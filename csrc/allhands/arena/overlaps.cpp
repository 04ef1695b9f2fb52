#include "allhands/arena/overlaps.hpp"

#include "allhands/kernels/pack.hpp"

namespace allhands {
namespace {

constexpr std::size_t kCacheLine = 64;

std::size_t whole_lines(std::size_t bytes) {
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

// `is_own_place`: the input may be the output.
bool is_overwritten(const Buffer& input, const Buffer& output, bool is_own_place) {
  return !(is_own_place && input == output) && overlap(input, output);
}

bool is_any_overwritten(const Buffer& input, const std::vector<Buffer>& outputs,
                        std::size_t own) {
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (is_overwritten(input, outputs[i], i == own)) return true;
  return false;
}

bool is_any_overwritten(const std::vector<Buffer>& inputs, const Buffer& output,
                        std::size_t own) {
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (is_overwritten(inputs[i], output, i == own)) return true;
  return false;
}

}  // namespace

bool writes_own_inputs(const Operation& operation, int rank) {
  const auto self = static_cast<std::size_t>(rank);
  const Buffer &input = operation.input, &output = operation.output;
  const std::vector<Buffer>&inputs = operation.inputs, &outputs = operation.outputs;
  if (is_overwritten(input, output, true)) return true;
  if (inputs.empty() && outputs.empty()) return false;  // as in the smallest calls
  if (is_any_overwritten(input, outputs, self) ||
      is_any_overwritten(inputs, output, self))
    return true;
  if (!overlap(inputs, outputs)) return false;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (is_any_overwritten(inputs[i], outputs, i)) return true;
  return false;
}

CopiedInputs::CopiedInputs(const Operation& operation) : operation_(operation) {
  std::size_t bytes = whole_lines(operation_.input.num_bytes());
  for (const Buffer& input : operation_.inputs) bytes += whole_lines(input.num_bytes());
  memory_.resize(bytes);
  copy(operation_.input, 0);
  std::size_t at = whole_lines(operation_.input.num_bytes());
  for (Buffer& input : operation_.inputs) {
    copy(input, at);
    at += whole_lines(input.num_bytes());
  }
}

void CopiedInputs::copy(Buffer& input, std::size_t at) {
  pack(input, 0, input.count, memory_.data() + at);
  input = {memory_.data() + at, input.dtype, input.count, {}, 0};
}

}  // namespace allhands
