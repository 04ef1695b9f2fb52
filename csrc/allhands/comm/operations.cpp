// The collectives of a Communicator: what is checked before anything moves.
#include <string>

#include "allhands/arena/collectives.hpp"
#include "allhands/base/error.hpp"
#include "allhands/comm/communicator.hpp"
#include "allhands/kernels/reduce.hpp"

namespace allhands {
namespace {

void check_reduction(DType dtype, ReduceOp op, double factor) {
  check_supported(dtype, op);
  if (op == ReduceOp::PremulSum) check_factor(dtype, factor);
}

void check_dtype(const std::string& what, const Buffer& buffer, DType expected) {
  if (buffer.dtype != expected)
    throw Error(ErrorKind::Type, what + " has dtype " + name_of(buffer.dtype) +
                                     ", expected " + name_of(expected));
}

void check_count(const std::string& what, const Buffer& buffer, std::size_t expected) {
  if (buffer.count != expected)
    throw Error(ErrorKind::Value, what + " has " + std::to_string(buffer.count) +
                                      " elements, expected " +
                                      std::to_string(expected));
}

void check_same(const std::string& what, const Buffer& buffer, const Buffer& expected) {
  check_dtype(what, buffer, expected.dtype);
  check_count(what, buffer, expected.count);
}

void check_root(const char* op, int root, int size) {
  if (root < 0 || root >= size)
    throw Error(ErrorKind::Value, std::string(op) + ": root must be in [0, " +
                                      std::to_string(size) + "), got " +
                                      std::to_string(root));
}

// One array per rank, all of one dtype.
void check_list(const std::string& what, const std::vector<Buffer>& list, int size,
                DType dtype) {
  if (list.size() != static_cast<std::size_t>(size))
    throw Error(ErrorKind::Value, what + " list has " + std::to_string(list.size()) +
                                      " arrays, expected " + std::to_string(size) +
                                      ", one per rank");
  for (std::size_t i = 0; i < list.size(); ++i)
    check_dtype(what + " " + std::to_string(i), list[i], dtype);
}

void check_equal_counts(const std::string& what, const std::vector<Buffer>& list,
                        std::size_t count) {
  for (std::size_t i = 0; i < list.size(); ++i)
    check_count(what + " " + std::to_string(i), list[i], count);
}

}  // namespace

using Operation = Communicator::Operation;

Operation Communicator::all_reduce(const Buffer& output, const Buffer& input,
                                   ReduceOp op, double factor) const {
  check_reduction(input.dtype, op, factor);
  check_same("all_reduce: the output", output, input);
  return [=](Arena& arena, const Limits& limits) {
    allhands::all_reduce(arena, output, input, op, factor, limits);
  };
}

Operation Communicator::reduce(const Buffer& buffer, int root, ReduceOp op,
                               double factor) const {
  check_reduction(buffer.dtype, op, factor);
  check_root("reduce", root, size());
  return [=](Arena& arena, const Limits& limits) {
    allhands::reduce(arena, buffer, root, op, factor, limits);
  };
}

Operation Communicator::reduce_scatter(const Buffer& output, std::vector<Buffer> inputs,
                                       ReduceOp op, double factor) const {
  check_reduction(output.dtype, op, factor);
  check_list("reduce_scatter: input", inputs, size(), output.dtype);
  check_count("reduce_scatter: the output", output,
              inputs[static_cast<std::size_t>(rank())].count);
  return [=, inputs = std::move(inputs)](Arena& arena, const Limits& limits) {
    allhands::reduce_scatter(arena, output, inputs, op, factor, limits);
  };
}

Operation Communicator::broadcast(const Buffer& buffer, int root) const {
  check_root("broadcast", root, size());
  return [=](Arena& arena, const Limits& limits) {
    allhands::broadcast(arena, buffer, root, limits);
  };
}

Operation Communicator::all_gather(std::vector<Buffer> outputs,
                                   const Buffer& input) const {
  check_list("all_gather: output", outputs, size(), input.dtype);
  check_count("all_gather: output " + std::to_string(rank()) + " (this rank's)",
              outputs[static_cast<std::size_t>(rank())], input.count);
  return [=, outputs = std::move(outputs)](Arena& arena, const Limits& limits) {
    allhands::all_gather(arena, outputs, input, limits);
  };
}

Operation Communicator::gather(std::vector<Buffer> outputs, const Buffer& input,
                               int root) const {
  check_root("gather", root, size());
  if (rank() == root) {
    check_list("gather: output", outputs, size(), input.dtype);
    check_equal_counts("gather: output", outputs, input.count);
  }
  return [=, outputs = std::move(outputs)](Arena& arena, const Limits& limits) {
    allhands::gather(arena, outputs, input, root, limits);
  };
}

Operation Communicator::scatter(const Buffer& output, std::vector<Buffer> inputs,
                                int root) const {
  check_root("scatter", root, size());
  if (rank() == root) {
    check_list("scatter: input", inputs, size(), output.dtype);
    check_equal_counts("scatter: input", inputs, output.count);
  }
  return [=, inputs = std::move(inputs)](Arena& arena, const Limits& limits) {
    allhands::scatter(arena, output, inputs, root, limits);
  };
}

Operation Communicator::all_to_all(std::vector<Buffer> outputs,
                                   std::vector<Buffer> inputs) const {
  const DType dtype = inputs.empty() ? DType::UInt8 : inputs.front().dtype;
  check_list("all_to_all: input", inputs, size(), dtype);
  check_list("all_to_all: output", outputs, size(), dtype);
  return [outputs = std::move(outputs), inputs = std::move(inputs)](
             Arena& arena, const Limits& limits) {
    allhands::all_to_all(arena, outputs, inputs, limits);
  };
}

Operation Communicator::barrier() const {
  return [](Arena& arena, const Limits& limits) { allhands::barrier(arena, limits); };
}

}  // namespace allhands
