#include "allhands/arena/single_copy.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

#include "allhands/arena/cooperative_copy.hpp"
#include "allhands/arena/peer_arrays.hpp"
#include "allhands/arena/reduction.hpp"
#include "allhands/arena/rounds.hpp"
#include "allhands/kernels/copy_bytes.hpp"
#include "allhands/kernels/pack.hpp"

namespace allhands::single_copy {
namespace {

constexpr std::size_t kCacheLine = 64;

// Bytes reduced at a time: few enough that the copies to the other ranks' arrays find
// them, and what they overwrite, in the first cache. 16 KiB take up to 1.5 times as
// long.
constexpr std::size_t kBlock = std::size_t{4} << 10;

// The same for what is read by system calls, which must fit in the second-level cache.
constexpr std::size_t kReadBlock = std::size_t{128} << 10;

// Bytes [begin, end) of `count` elements that `rank` reduces; parts begin on cache
// lines of their own.
struct Part {
  std::size_t begin;
  std::size_t end;
};

Part part_of(const Arena& arena, int owner, std::size_t num_bytes) {
  const auto size = static_cast<std::size_t>(arena.size());
  const auto rank = static_cast<std::size_t>(owner);
  const std::size_t share = (num_bytes / size + kCacheLine) / kCacheLine *
                            kCacheLine;  // the last may be less
  return {std::min(num_bytes, share * rank), std::min(num_bytes, share * (rank + 1))};
}

// Reduces into all outputs, which are memory of this process.
void reduce_mapped(const Arena& arena, const PeerArrays& peers, Reduction& reduction,
                   Part part, std::size_t element) {
  const int self = arena.rank(), size = arena.size();
  for (std::size_t at = part.begin; at < part.end; at += kBlock) {
    const std::size_t bytes = std::min(kBlock, part.end - at);
    for (int rank = 0; rank < size; ++rank)
      reduction.source(rank) = peers.at(rank, 0, at, bytes);
    std::byte* const result = peers.at(self, 1, at, bytes);
    reduction.run(result, bytes / element);
    for (int step = 1; step < size; ++step)
      copy_bytes(peers.at((self + step) % size, 1, at, bytes), result, bytes);
  }
}

// Reduces what this rank has at `own`, into elements [0, count) of `output`, with what
// the others have from byte `begin` on of their i-th buffer.
void reduce_read(Arena& arena, const PeerArrays& peers, Reduction& reduction,
                 std::size_t i, std::size_t begin, const std::byte* own,
                 const Buffer& output) {
  const std::size_t element = size_of(output.dtype);
  std::byte* const blocks =
      arena.scratch(static_cast<std::size_t>(arena.size()) * kReadBlock);
  const Cut cut = {output.count, kReadBlock / element};
  for (std::size_t k = 0; k < cut.rounds(); ++k) {
    const std::size_t at = cut.begin(k) * element, bytes = cut.length(k) * element;
    for (int rank = 0; rank < arena.size(); ++rank) {
      std::byte* const block = blocks + static_cast<std::size_t>(rank) * kReadBlock;
      if (rank != arena.rank()) peers.read(rank, i, begin + at, block, bytes);
      reduction.source(rank) = rank == arena.rank() ? own + at : block;
    }
    reduction.run(output, cut.begin(k), cut.length(k));
  }
}

// Each rank reduces its part into its output, where the others read it.
void all_reduce_read(Arena& arena, const PeerArrays& peers, Reduction& reduction,
                     const Buffer& output, const Buffer& input) {
  const std::size_t element = size_of(input.dtype);
  const auto slice = [&](const Buffer& buffer, Part part) {
    return buffer.slice(part.begin / element, (part.end - part.begin) / element);
  };
  const Part own = part_of(arena, arena.rank(), input.num_bytes());
  reduce_read(arena, peers, reduction, 0, own.begin,
              static_cast<const std::byte*>(input.data) + own.begin,
              slice(output, own));
  const std::uint32_t reduced = arena.publish();
  for (int step = 1; step < arena.size(); ++step) {
    const int owner = (arena.rank() + step) % arena.size();
    const Part part = part_of(arena, owner, input.num_bytes());
    const Buffer target = slice(output, part);
    arena.wait(owner, reduced);
    peers.read(owner, 1, part.begin, target.data, target.num_bytes());
  }
}

}  // namespace

bool all_reduce(Arena& arena, const Ways& ways, const Buffer& output,
                const Buffer& input, ReduceOp op) {
  const std::array both = {input, output};
  const auto peers = PeerArrays::meet(arena, ways, both);
  if (!peers) return false;
  Reduction reduction(arena, input.dtype, op);
  if (peers->is_mapped())
    reduce_mapped(arena, *peers, reduction,
                  part_of(arena, arena.rank(), input.num_bytes()),
                  size_of(input.dtype));
  else
    all_reduce_read(arena, *peers, reduction, output, input);
  arena.part_from_peers();
  return true;
}

bool reduce(Arena& arena, const Ways& ways, const Buffer& buffer, int root,
            ReduceOp op) {
  const auto peers = PeerArrays::meet(arena, ways, std::span(&buffer, 1));
  if (!peers) return false;
  Reduction reduction(arena, buffer.dtype, op);
  const Part part = part_of(arena, arena.rank(), buffer.num_bytes());
  for (int rank = 0; rank < arena.size(); ++rank)
    reduction.source(rank) = peers->at(rank, 0, part.begin, part.end - part.begin);
  reduction.run(peers->at(root, 0, part.begin, part.end - part.begin),
                (part.end - part.begin) / size_of(buffer.dtype));
  arena.part_from_peers();
  return true;
}

bool broadcast(Arena& arena, const Ways& ways, const Buffer& buffer, int root) {
  const bool is_root = arena.rank() == root;
  const bool is_cooperative = ways.may(Way::Cooperative);
  CooperativeReceives receives(arena);
  if (is_cooperative && !is_root) receives.open(root, buffer);
  const auto peers = PeerArrays::meet(arena, ways, std::span(&buffer, 1));
  if (!peers) return false;
  if (!is_cooperative || peers->is_mapped()) {
    receives.close();
    if (!is_root) peers->fetch(root, 0, buffer, ways.stores);
  } else if (is_root) {
    cooperative_send(arena, 1 - root, buffer);
  } else {
    receives.complete(*peers);
  }
  arena.part_from_peers();
  return true;
}

bool all_gather(Arena& arena, const Ways& ways, const std::vector<Buffer>& outputs,
                const Buffer& input) {
  const auto self = static_cast<std::size_t>(arena.rank());
  const auto peers = PeerArrays::meet(arena, ways, std::span(&input, 1));
  if (!peers) return false;
  for (std::size_t step = 1; step <= outputs.size(); ++step) {  // own comes last
    const std::size_t rank = (self + step) % outputs.size();    // spread the readers
    peers->fetch(static_cast<int>(rank), 0, outputs[rank], ways.stores);
  }
  arena.part_from_peers();
  return true;
}

bool gather(Arena& arena, const Ways& ways, const std::vector<Buffer>& outputs,
            const Buffer& input, int root) {
  const auto self = static_cast<std::size_t>(arena.rank());
  CooperativeReceives receives(arena);
  if (ways.may(Way::Cooperative))
    for (std::size_t rank = 0; rank < outputs.size(); ++rank)  // empty but on the root
      if (rank != self)  // what it has for itself must stay until it has copied it
        receives.open(static_cast<int>(rank), outputs[rank]);
  const auto peers = PeerArrays::meet(arena, ways, std::span(&input, 1));
  if (!peers) return false;
  if (peers->is_mapped()) {
    receives.close();
    for (std::size_t rank = 0; rank < outputs.size(); ++rank)
      peers->fetch(static_cast<int>(rank), 0, outputs[rank], ways.stores);
  } else if (arena.rank() != root) {
    cooperative_send(arena, root, input);
  } else {
    peers->fetch(root, 0, outputs[self], ways.stores);
    receives.complete(*peers);
  }
  arena.part_from_peers();
  return true;
}

bool reduce_scatter(Arena& arena, const Ways& ways, const Buffer& output,
                    const std::vector<Buffer>& inputs, ReduceOp op) {
  const auto self = static_cast<std::size_t>(arena.rank());
  const auto peers = PeerArrays::meet(arena, ways, inputs);
  if (!peers) return false;
  Reduction reduction(arena, output.dtype, op);
  if (!peers->is_mapped()) {
    reduce_read(arena, *peers, reduction, self, 0,
                static_cast<const std::byte*>(inputs[self].data), output);
    arena.part_from_peers();
    return true;
  }
  const Cut blocks = {output.count, kBlock / size_of(output.dtype)};
  for (std::size_t i = 0; i < blocks.rounds(); ++i) {
    for (int rank = 0; rank < arena.size(); ++rank)
      reduction.source(rank) =
          peers->at(rank, self, blocks.begin(i) * size_of(output.dtype),
                    blocks.length(i) * size_of(output.dtype));
    reduction.run(output, blocks.begin(i), blocks.length(i));
  }
  arena.part_from_peers();
  return true;
}

bool writes_inputs(const std::vector<Buffer>& outputs,
                   const std::vector<Buffer>& inputs, std::size_t self) {
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (i != self && overlap(outputs[i], inputs[i])) return true;
  return false;
}

bool all_to_all(Arena& arena, const std::vector<Buffer>& outputs,
                const std::vector<Buffer>& inputs, const std::function<void()>& check) {
  const auto self = static_cast<std::size_t>(arena.rank());
  const bool is_overwritten = writes_inputs(outputs, inputs, self);
  // Shares outside shared arrays are read one by one, as their senders tell.
  const Ways mapped = Ways().add(Way::Mapped);
  const auto peers = PeerArrays::meet(
      arena, mapped, std::span(inputs).first(is_overwritten ? 0 : inputs.size()));
  if (!peers) return false;
  check();
  for (std::size_t step = 1; step <= outputs.size(); ++step) {  // own comes last
    const std::size_t rank = (self + step) % outputs.size();    // spread the readers
    peers->fetch(static_cast<int>(rank), self, outputs[rank]);
  }
  arena.part_from_peers();
  return true;
}

bool scatter(Arena& arena, const Ways& ways, const Buffer& output,
             const std::vector<Buffer>& inputs, int root) {
  const auto self = static_cast<std::size_t>(arena.rank());
  const auto peers = PeerArrays::meet_root(arena, ways, inputs, root);
  if (!peers) return false;
  peers->fetch(root, self, output, ways.stores);
  arena.part_from_peers();
  return true;
}

}  // namespace allhands::single_copy
