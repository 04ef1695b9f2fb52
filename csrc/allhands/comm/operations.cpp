// The collectives of a Communicator: what is checked before anything moves.
#include <algorithm>
#include <functional>
#include <string>
#include <tuple>

#include "allhands/base/error.hpp"
#include "allhands/comm/communicator.hpp"
#include "allhands/kernels/reduce.hpp"

namespace allhands {
namespace {

void check_reduction(const char* operation, DType dtype, ReduceOp op,
                     const Factor& factor) {
  check_supported(operation, dtype, op);
  if (op == ReduceOp::PremulSum) check_factor(dtype, factor);
}

// These are on the path of every call: they make no text but for an error.

void check_dtype(const Buffer& buffer, DType expected) {
  if (buffer.dtype != expected)
    throw Error(ErrorKind::Value,
                std::string("Invalid usage of tensors with different dtypes: found ") +
                    name_of(expected) + " and " + name_of(buffer.dtype));
}

// Entry `index` of a list; -1: the only one.
void check_count(const char* what, const Buffer& buffer, std::size_t expected,
                 int index = -1) {
  if (buffer.count != expected)
    throw Error(ErrorKind::Value,
                what + (index < 0 ? "" : " " + std::to_string(index)) + " has " +
                    std::to_string(buffer.count) + " elements, expected " +
                    std::to_string(expected));
}

void check_root(const char* op, int root, int size) {
  if (root < 0 || root >= size)
    throw Error(ErrorKind::Unsupported,
                std::string(op) + ": invalid root rank: " + std::to_string(root) +
                    "; it must be in [0, " + std::to_string(size) + ")");
}

// The "input" or "output" list: one array per rank, all of one dtype.
void check_list(const char* op, const char* which, const std::vector<Buffer>& list,
                int size, DType dtype) {
  if (list.size() != static_cast<std::size_t>(size))
    throw Error(ErrorKind::Unsupported,
                std::string(op) + ": invalid " + which +
                    " tensor list (expected length " + std::to_string(size) + ", got " +
                    std::to_string(list.size()) + "): " + which +
                    " list size should be " + std::to_string(size) +
                    ", same as size of the process group");
  for (const Buffer& buffer : list) check_dtype(buffer, dtype);
}

// The list that only the root has. `role`: the root's.
void check_list_of_root(const char* op, const char* role,
                        const std::vector<Buffer>& list, int rank, int root) {
  const bool is_root = rank == root;
  if (is_root != list.empty()) return;
  const std::string argument = "Argument ``" + std::string(op) + "_list`` must ";
  if (is_root)
    throw Error(ErrorKind::Value, argument + "be specified on " + role + " rank.");
  throw Error(ErrorKind::Value, argument + "NOT be specified on non-" + role +
                                    " ranks; the " + role + " is group rank " +
                                    std::to_string(root) + ", this is " +
                                    std::to_string(rank) + ".");
}

// `next` begins behind `buffer`: where that ends, if it is contiguous.
bool is_behind(const Buffer& buffer, const Buffer& next) {
  const auto* begin = static_cast<const std::byte*>(buffer.data);
  const std::size_t extent = buffer.is_contiguous() ? buffer.num_bytes() : 0;
  const std::less<> less;
  if (next.data == buffer.data && extent == 0) return buffer.first < next.first;
  return less(begin, next.data) && !less(next.data, begin + extent);
}

// What one call writes must not be written twice. Of strided arrays only those that
// begin at the same element are found: others may interleave.
void check_apart(const char* what, const std::vector<Buffer>& list) {
  const auto is_apart = [&](std::size_t i, std::size_t j) {
    return list[i].count == 0 || list[j].count == 0 || is_behind(list[i], list[j]);
  };
  std::size_t num_ascending = 1;
  while (num_ascending < list.size() && is_apart(num_ascending - 1, num_ascending))
    ++num_ascending;
  if (num_ascending >= list.size()) return;  // nearly always
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < list.size(); ++i)
    if (list[i].count > 0) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) {
    return std::tie(list[i].data, list[i].first) <
           std::tie(list[j].data, list[j].first);
  });
  for (std::size_t k = 1; k < order.size(); ++k)
    if (!is_apart(order[k - 1], order[k]))
      throw Error(ErrorKind::Value,
                  std::string(what) + "s " +
                      std::to_string(std::min(order[k - 1], order[k])) + " and " +
                      std::to_string(std::max(order[k - 1], order[k])) +
                      " share memory; each needs its own");
}

void check_equal_counts(const char* what, const std::vector<Buffer>& list,
                        std::size_t count) {
  for (std::size_t i = 0; i < list.size(); ++i)
    check_count(what, list[i], count, static_cast<int>(i));
}

}  // namespace

Operation Communicator::all_reduce(const Buffer& output, const Buffer& input,
                                   ReduceOp op, const Factor& factor) const {
  check_reduction("all_reduce", input.dtype, op, factor);
  check_dtype(output, input.dtype);
  check_count("all_reduce: the output", output, input.count);
  return {.op = Op::AllReduce,
          .reduce_op = op,
          .factor = factor,
          .output = output,
          .input = input};
}

Operation Communicator::reduce(const Buffer& buffer, int root, ReduceOp op,
                               const Factor& factor) const {
  check_reduction("reduce", buffer.dtype, op, factor);
  check_root("reduce", root, size());
  return {.op = Op::Reduce,
          .reduce_op = op,
          .root = root,
          .factor = factor,
          .input = buffer};
}

Operation Communicator::reduce_scatter(const Buffer& output, std::vector<Buffer> inputs,
                                       ReduceOp op, const Factor& factor) const {
  check_reduction("reduce_scatter", output.dtype, op, factor);
  check_list("reduce_scatter", "input", inputs, size(), output.dtype);
  check_count("reduce_scatter: the output", output,
              inputs[static_cast<std::size_t>(rank())].count);
  return {.op = Op::ReduceScatter,
          .reduce_op = op,
          .factor = factor,
          .output = output,
          .inputs = std::move(inputs)};
}

Operation Communicator::broadcast(const Buffer& buffer, int root) const {
  check_root("broadcast", root, size());
  return {.op = Op::Broadcast, .root = root, .input = buffer};
}

Operation Communicator::all_gather(std::vector<Buffer> outputs,
                                   const Buffer& input) const {
  check_list("all_gather", "output", outputs, size(), input.dtype);
  check_count("all_gather: output (this rank's)",
              outputs[static_cast<std::size_t>(rank())], input.count, rank());
  check_apart("all_gather: output", outputs);
  return {.op = Op::AllGather, .input = input, .outputs = std::move(outputs)};
}

Operation Communicator::gather(std::vector<Buffer> outputs, const Buffer& input,
                               int root) const {
  check_root("gather", root, size());
  check_list_of_root("gather", "destination", outputs, rank(), root);
  if (rank() == root) {
    check_list("gather", "output", outputs, size(), input.dtype);
    check_equal_counts("gather: output", outputs, input.count);
    check_apart("gather: output", outputs);
  }
  return {
      .op = Op::Gather, .root = root, .input = input, .outputs = std::move(outputs)};
}

Operation Communicator::scatter(const Buffer& output, std::vector<Buffer> inputs,
                                int root) const {
  check_root("scatter", root, size());
  check_list_of_root("scatter", "source", inputs, rank(), root);
  if (rank() == root) {
    check_list("scatter", "input", inputs, size(), output.dtype);
    check_equal_counts("scatter: input", inputs, output.count);
  }
  return {
      .op = Op::Scatter, .root = root, .output = output, .inputs = std::move(inputs)};
}

Operation Communicator::all_to_all(std::vector<Buffer> outputs,
                                   std::vector<Buffer> inputs) const {
  const DType dtype = inputs.empty() ? DType::UInt8 : inputs.front().dtype;
  check_list("all_to_all", "input", inputs, size(), dtype);
  check_list("all_to_all", "output", outputs, size(), dtype);
  check_apart("all_to_all: output", outputs);
  return {
      .op = Op::AllToAll, .outputs = std::move(outputs), .inputs = std::move(inputs)};
}

Operation Communicator::barrier() const { return {.op = Op::Barrier}; }

}  // namespace allhands
