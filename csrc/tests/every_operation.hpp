// Operations of every kind, on arrays of every dtype.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives.hpp"

namespace allhands::testing {

// An operation with the memory that it is on.
class Call {
 public:
  Call(DType dtype, int rank) : dtype_(dtype), rank_(rank) {}
  Call(const Call&) = delete;

  // An array that holds something else on each rank and in each place.
  Buffer array(std::size_t count) {
    const Buffer buffer = memory(count);
    if (dtype_ == DType::Float32 || dtype_ == DType::Complex64)
      fill<float>(buffer);
    else if (dtype_ == DType::Float64 || dtype_ == DType::Complex128)
      fill<double>(buffer);
    else
      fill_bytes(buffer);
    // From 0.5 up to 2, of either sign, whose sums are not among them.
    if (dtype_ == DType::Float16) keep_and_set<0x87ff, 0x3800>(buffer);
    if (dtype_ == DType::BFloat16) keep_and_set<0x80ff, 0x3f00>(buffer);
    return buffer;
  }
  // The same, every third element of an array.
  Buffer strided(std::size_t count) {
    Buffer buffer = array(3 * count);
    buffer.count = count;
    buffer.dimensions = {{static_cast<std::int64_t>(count),
                          static_cast<std::int64_t>(3 * size_of(dtype_))}};
    return buffer;
  }
  std::vector<Buffer> arrays(int number, std::size_t count, std::size_t more = 0) {
    std::vector<Buffer> list;
    for (int i = 0; i < number; ++i)
      list.push_back(array(count + more * static_cast<std::size_t>(i)));
    return list;
  }

  bool has_same_memory(const Call& other) const { return arrays_ == other.arrays_; }

  Operation operation;

 private:
  void fill_bytes(const Buffer& buffer) const {
    auto* const bytes = static_cast<std::uint8_t*>(buffer.data);
    const std::size_t num_bytes = buffer.num_bytes();
    const std::size_t first = static_cast<unsigned>(rank_) * 40503u + arrays_.size();
    for (std::size_t i = 0; i < num_bytes; ++i)
      bytes[i] = static_cast<std::uint8_t>((i * 2654435761u + first) >> 7);
  }
  // Numbers whose sums are rounded.
  template <class T>
  void fill(const Buffer& buffer) const {
    auto* const numbers = static_cast<T*>(buffer.data);
    const std::size_t num_numbers = buffer.num_bytes() / sizeof(T);
    const std::size_t first = 3 * arrays_.size() + 1;
    for (std::size_t i = 0; i < num_numbers; ++i)
      numbers[i] = T{1} / static_cast<T>(i + first) + static_cast<T>(rank_) * T(0.37);
  }
  template <unsigned kKept, unsigned kSet>
  void keep_and_set(const Buffer& buffer) const {
    auto* const numbers = static_cast<std::uint16_t*>(buffer.data);
    for (std::size_t i = 0; i < buffer.count; ++i)
      numbers[i] = static_cast<std::uint16_t>((numbers[i] & kKept) | kSet);
  }

  Buffer memory(std::size_t count) {
    arrays_.emplace_back(count * size_of(dtype_) + 1);
    return {arrays_.back().data(), dtype_, count, {}, 0};
  }

  const DType dtype_;
  const int rank_;
  std::vector<std::vector<std::uint8_t>> arrays_;
};

// Fills in the operation of a rank of `size`, of arrays of about `count` elements.
struct Kind {
  const char* name;
  void (*make)(Call& call, int rank, int size, std::size_t count, ReduceOp op);
};

inline const Kind kKinds[] = {
    {"barrier",
     [](Call& call, int, int, std::size_t, ReduceOp) { call.operation = barrier(); }},
    {"all_reduce",
     [](Call& call, int rank, int, std::size_t count, ReduceOp op) {
       call.operation = all_reduce(call.array(count), call.array(count), op, rank + 2);
     }},
    {"all_reduce in place",
     [](Call& call, int rank, int, std::size_t count, ReduceOp op) {
       const Buffer buffer = call.array(count);
       call.operation = all_reduce(buffer, buffer, op, rank + 2);
     }},
    {"all_reduce of strided arrays",
     [](Call& call, int rank, int, std::size_t count, ReduceOp op) {
       call.operation =
           all_reduce(call.strided(count), call.strided(count), op, rank + 2);
     }},
    {"reduce",
     [](Call& call, int rank, int size, std::size_t count, ReduceOp op) {
       call.operation = reduce(call.array(count), size - 1, op, rank + 2);
     }},
    {"reduce_scatter",
     [](Call& call, int rank, int size, std::size_t count, ReduceOp op) {
       const auto inputs = call.arrays(size, count, 3);
       const std::size_t own = inputs[static_cast<std::size_t>(rank)].count;
       call.operation = reduce_scatter(call.array(own), inputs, op, rank + 2);
     }},
    {"broadcast",
     [](Call& call, int, int size, std::size_t count, ReduceOp) {
       call.operation = broadcast(call.strided(count), size / 2);
     }},
    {"all_gather",
     [](Call& call, int rank, int size, std::size_t count, ReduceOp) {
       const auto outputs = call.arrays(size, count, 2);
       const std::size_t own = outputs[static_cast<std::size_t>(rank)].count;
       call.operation = all_gather(outputs, call.strided(own));
     }},
    {"all_gather into its input",
     [](Call& call, int rank, int size, std::size_t count, ReduceOp) {
       const auto outputs = call.arrays(size, count);
       call.operation = all_gather(outputs, outputs[static_cast<std::size_t>(rank)]);
     }},
    {"gather",
     [](Call& call, int rank, int size, std::size_t count, ReduceOp) {
       const int root = size - 1;
       const auto outputs = call.arrays(rank == root ? size : 0, count);
       call.operation = gather(outputs, call.array(count), root);
     }},
    {"scatter",
     [](Call& call, int rank, int size, std::size_t count, ReduceOp) {
       const int root = size / 2;
       const auto inputs = call.arrays(rank == root ? size : 0, count);
       call.operation = scatter(call.strided(count), inputs, root);
     }},
    {"scan",
     [](Call& call, int rank, int, std::size_t count, ReduceOp op) {
       call.operation = scan(kScan, call.array(count), call.array(count), op);
       call.operation.factor = rank + 2;
     }},
    {"exscan",
     [](Call& call, int rank, int, std::size_t count, ReduceOp op) {
       const Buffer buffer = call.array(count);
       call.operation = scan(kExscan, buffer, buffer, op);
       call.operation.factor = rank + 2;
     }},
    {"all_reduce_coalesced",
     [](Call& call, int rank, int, std::size_t count, ReduceOp op) {
       call.operation = all_reduce_coalesced(call.arrays(3, count, 1));
       call.operation.reduce_op = op;
       call.operation.factor = rank + 2;
     }},
    {"all_gather_coalesced",
     [](Call& call, int, int size, std::size_t count, ReduceOp) {
       const auto inputs = call.arrays(2, count);
       call.operation = all_gather_coalesced(call.arrays(2 * size, count), inputs);
     }},
    {"reduce_scatter_coalesced",
     [](Call& call, int rank, int size, std::size_t count, ReduceOp op) {
       const auto inputs = call.arrays(2 * size, count);
       call.operation = reduce_scatter_coalesced(call.arrays(2, count), inputs);
       call.operation.reduce_op = op;
       call.operation.factor = rank + 2;
     }},
};

}  // namespace allhands::testing
