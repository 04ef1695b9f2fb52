// The collectives of a Communicator: what is checked before anything moves.
#include <string>

#include "allhands/arena/collectives.hpp"
#include "allhands/base/error.hpp"
#include "allhands/comm/communicator.hpp"
#include "allhands/kernels/reduce.hpp"

namespace allhands {
namespace {

void check_dtype(const char* what, const Buffer& buffer, const Buffer& expected) {
  if (buffer.dtype != expected.dtype)
    throw Error(ErrorKind::Type, std::string(what) + " has dtype " +
                                     name_of(buffer.dtype) + ", the input has " +
                                     name_of(expected.dtype));
}

void check_count(const std::string& what, const Buffer& buffer, std::size_t expected) {
  if (buffer.count != expected)
    throw Error(ErrorKind::Value, what + " has " + std::to_string(buffer.count) +
                                      " elements, expected " +
                                      std::to_string(expected));
}

}  // namespace

Communicator::Operation Communicator::all_reduce(const Buffer& output,
                                                 const Buffer& input, ReduceOp op,
                                                 double factor) const {
  check_supported(input.dtype, op);
  check_dtype("all_reduce: the output", output, input);
  check_count("all_reduce: the output", output, input.count);
  return [output, input, op, factor](Arena& arena, const Limits& limits) {
    allhands::all_reduce(arena, output, input, op, factor, limits);
  };
}

Communicator::Operation Communicator::broadcast(const Buffer& buffer, int root) const {
  if (root < 0 || root >= size())
    throw Error(ErrorKind::Value, "broadcast: root must be in [0, " +
                                      std::to_string(size()) + "), got " +
                                      std::to_string(root));
  return [buffer, root](Arena& arena, const Limits& limits) {
    allhands::broadcast(arena, buffer, root, limits);
  };
}

Communicator::Operation Communicator::all_gather(std::vector<Buffer> outputs,
                                                 const Buffer& input) const {
  if (outputs.size() != static_cast<std::size_t>(size()))
    throw Error(ErrorKind::Value,
                "all_gather: the output list has " + std::to_string(outputs.size()) +
                    " arrays, expected " + std::to_string(size()) + ", one per rank");
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::string what = "all_gather: output " + std::to_string(i);
    check_dtype(what.c_str(), outputs[i], input);
    check_count(what, outputs[i], input.count);
  }
  return [outputs = std::move(outputs), input](Arena& arena, const Limits& limits) {
    allhands::all_gather(arena, outputs, input, limits);
  };
}

Communicator::Operation Communicator::all_gather_single(const Buffer& output,
                                                        const Buffer& input) const {
  check_dtype("all_gather_single: the output", output, input);
  check_count("all_gather_single: the output", output,
              input.count * static_cast<std::size_t>(size()));
  std::vector<Buffer> outputs;
  for (int rank = 0; rank < size(); ++rank)
    outputs.push_back(
        output.slice(input.count * static_cast<std::size_t>(rank), input.count));
  return all_gather(std::move(outputs), input);
}

Communicator::Operation Communicator::barrier() const {
  return [](Arena& arena, const Limits& limits) { allhands::barrier(arena, limits); };
}

}  // namespace allhands
