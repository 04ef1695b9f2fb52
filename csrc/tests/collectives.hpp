// Each collective as a function: of its arguments, the Operation; with an arena before
// them and limits behind, a call that checks it and runs it there.
#pragma once

#include <utility>
#include <vector>

#include "allhands/arena/collectives.hpp"
#include "allhands/comm/run.hpp"

namespace allhands::testing {

inline Operation all_reduce(const Buffer& output, const Buffer& input, ReduceOp op,
                            const Factor& factor) {
  return {.collective = &kAllReduce,
          .reduce_op = op,
          .factor = factor,
          .output = output,
          .input = input};
}

inline Operation reduce(const Buffer& buffer, int root, ReduceOp op,
                        const Factor& factor) {
  return {.collective = &kReduce,
          .reduce_op = op,
          .root = root,
          .factor = factor,
          .input = buffer};
}

inline Operation reduce_scatter(const Buffer& output, std::vector<Buffer> inputs,
                                ReduceOp op, const Factor& factor) {
  return {.collective = &kReduceScatter,
          .reduce_op = op,
          .factor = factor,
          .output = output,
          .inputs = std::move(inputs)};
}

inline Operation broadcast(const Buffer& buffer, int root) {
  return {.collective = &kBroadcast, .root = root, .output = buffer, .input = buffer};
}

inline Operation all_gather(std::vector<Buffer> outputs, const Buffer& input) {
  return {.collective = &kAllGather, .input = input, .outputs = std::move(outputs)};
}

inline Operation gather(std::vector<Buffer> outputs, const Buffer& input, int root) {
  return {.collective = &kGather,
          .root = root,
          .input = input,
          .outputs = std::move(outputs)};
}

inline Operation scatter(const Buffer& output, std::vector<Buffer> inputs, int root) {
  return {.collective = &kScatter,
          .root = root,
          .output = output,
          .inputs = std::move(inputs)};
}

inline Operation all_to_all(std::vector<Buffer> outputs, std::vector<Buffer> inputs) {
  return {.collective = &kAllToAll,
          .outputs = std::move(outputs),
          .inputs = std::move(inputs)};
}

// `collective`: kScan or kExscan.
inline Operation scan(const Collective& collective, const Buffer& output,
                      const Buffer& input, ReduceOp op) {
  return {.collective = &collective, .reduce_op = op, .output = output, .input = input};
}

inline Operation all_reduce_coalesced(std::vector<Buffer> list) {
  return {.collective = &kAllReduceCoalesced, .inputs = std::move(list)};
}

inline Operation all_gather_coalesced(std::vector<Buffer> outputs,
                                      std::vector<Buffer> inputs) {
  return {.collective = &kAllGatherCoalesced,
          .outputs = std::move(outputs),
          .inputs = std::move(inputs)};
}

inline Operation reduce_scatter_coalesced(std::vector<Buffer> outputs,
                                          std::vector<Buffer> inputs) {
  return {.collective = &kReduceScatterCoalesced,
          .outputs = std::move(outputs),
          .inputs = std::move(inputs)};
}

inline Operation barrier() { return {.collective = &kBarrier}; }

inline void call(Arena& arena, const Operation& operation, const Limits& limits) {
  operation.collective->check(operation, arena.rank(), arena.size());
  run(arena, arena.sequence() + 1, operation, limits);
}

inline void all_reduce(Arena& arena, const Buffer& output, const Buffer& input,
                       ReduceOp op, const Factor& factor, const Limits& limits) {
  call(arena, all_reduce(output, input, op, factor), limits);
}

inline void reduce(Arena& arena, const Buffer& buffer, int root, ReduceOp op,
                   const Factor& factor, const Limits& limits) {
  call(arena, reduce(buffer, root, op, factor), limits);
}

inline void reduce_scatter(Arena& arena, const Buffer& output,
                           std::vector<Buffer> inputs, ReduceOp op,
                           const Factor& factor, const Limits& limits) {
  call(arena, reduce_scatter(output, std::move(inputs), op, factor), limits);
}

inline void broadcast(Arena& arena, const Buffer& buffer, int root,
                      const Limits& limits) {
  call(arena, broadcast(buffer, root), limits);
}

inline void all_gather(Arena& arena, std::vector<Buffer> outputs, const Buffer& input,
                       const Limits& limits) {
  call(arena, all_gather(std::move(outputs), input), limits);
}

// `outputs` as the root passes them, on every rank.
inline void gather(Arena& arena, std::vector<Buffer> outputs, const Buffer& input,
                   int root, const Limits& limits) {
  if (arena.rank() != root) outputs.clear();
  call(arena, gather(std::move(outputs), input, root), limits);
}

// Likewise `inputs`.
inline void scatter(Arena& arena, const Buffer& output, std::vector<Buffer> inputs,
                    int root, const Limits& limits) {
  if (arena.rank() != root) inputs.clear();
  call(arena, scatter(output, std::move(inputs), root), limits);
}

inline void all_to_all(Arena& arena, std::vector<Buffer> outputs,
                       std::vector<Buffer> inputs, const Limits& limits) {
  call(arena, all_to_all(std::move(outputs), std::move(inputs)), limits);
}

inline void barrier(Arena& arena, const Limits& limits) {
  call(arena, barrier(), limits);
}

}  // namespace allhands::testing
