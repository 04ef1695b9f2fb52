#include "allhands/arena/direct.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "allhands/arena/peer_buffers.hpp"
#include "allhands/arena/reduction.hpp"
#include "allhands/arena/rounds.hpp"
#include "allhands/kernels/pack.hpp"

namespace allhands {
namespace {

constexpr std::size_t kCacheLine = 64;

// Bytes reduced at a time: few enough that the copies to the other ranks' arrays find
// them, and what they overwrite, in the first cache. 16 KiB take up to 1.5 times as
// long.
constexpr std::size_t kBlock = std::size_t{4} << 10;

// No rank uses another's array any more.
void part_from(Arena& arena) { arena.wait_all(arena.publish()); }

// Bytes [begin, end) of `count` elements that `rank` reduces; parts begin on cache
// lines of their own.
struct Part {
  std::size_t begin;
  std::size_t end;
};

Part part_of(const Arena& arena, std::size_t num_bytes) {
  const auto size = static_cast<std::size_t>(arena.size());
  const auto rank = static_cast<std::size_t>(arena.rank());
  const std::size_t share = (num_bytes / size + kCacheLine) / kCacheLine *
                            kCacheLine;  // the last may be less
  return {std::min(num_bytes, share * rank), std::min(num_bytes, share * (rank + 1))};
}

// The memory that an array lies in, between its lowest and its highest element.
struct Extent {
  std::intptr_t begin;
  std::intptr_t end;
};

Extent extent_of(const Buffer& buffer) {
  const auto at = reinterpret_cast<std::intptr_t>(buffer.data);
  if (buffer.is_contiguous())
    return {at, at + static_cast<std::intptr_t>(buffer.num_bytes())};
  Extent extent = {at, at + static_cast<std::intptr_t>(size_of(buffer.dtype))};
  for (const Dimension& dimension : buffer.dimensions) {
    const std::int64_t reach = (dimension.size - 1) * dimension.stride;
    (reach < 0 ? extent.begin : extent.end) += reach;
  }
  return extent;
}

bool overlap(const Buffer& a, const Buffer& b) {
  if (a.count == 0 || b.count == 0) return false;
  const Extent one = extent_of(a), other = extent_of(b);
  return one.begin < other.end && other.begin < one.end;
}

constexpr std::size_t kNone = SIZE_MAX;
constexpr std::size_t kAnySize = SIZE_MAX;  // where ranks do not know it beforehand

// Whether `buffer` shares memory with one of `list` other than that of this rank: then
// one of them would be written while a peer reads the other. Staged data is safe there.
bool overlaps_another(const Buffer& buffer, const std::vector<Buffer>& list,
                      std::size_t self) {
  for (std::size_t i = 0; i < list.size(); ++i)
    if (i != self && overlap(buffer, list[i])) return true;
  return false;
}

// Nothing to do where a rank gathers into the array that it contributes from.
void fetch(const std::byte* from, const Buffer& to) {
  if (from != to.data) unpack(from, to, 0, to.count);
}

}  // namespace

bool direct_all_reduce(Arena& arena, const Buffer& output, const Buffer& input,
                       ReduceOp op) {
  const auto peers =
      PeerBuffers::meet(arena, std::array{input, output}, input.num_bytes());
  if (!peers) return false;
  Reduction reduction(arena, input.dtype, op);
  const Part part = part_of(arena, input.num_bytes());
  const int self = arena.rank(), size = arena.size();
  for (std::size_t at = part.begin; at < part.end; at += kBlock) {
    const std::size_t bytes = std::min(kBlock, part.end - at);
    for (int rank = 0; rank < size; ++rank)
      reduction.source(rank) = peers->at(rank, 0) + at;
    std::byte* const result = peers->at(self, 1) + at;
    reduction.run(result, bytes / size_of(input.dtype));
    for (int step = 1; step < size; ++step)
      std::memcpy(peers->at((self + step) % size, 1) + at, result, bytes);
  }
  part_from(arena);
  return true;
}

bool direct_reduce(Arena& arena, const Buffer& buffer, int root, ReduceOp op) {
  const auto peers =
      PeerBuffers::meet(arena, std::span(&buffer, 1), buffer.num_bytes());
  if (!peers) return false;
  Reduction reduction(arena, buffer.dtype, op);
  const Part part = part_of(arena, buffer.num_bytes());
  for (int rank = 0; rank < arena.size(); ++rank)
    reduction.source(rank) = peers->at(rank, 0) + part.begin;
  reduction.run(peers->at(root, 0) + part.begin,
                (part.end - part.begin) / size_of(buffer.dtype));
  part_from(arena);
  return true;
}

bool direct_broadcast(Arena& arena, const Buffer& buffer, int root) {
  const auto peers =
      PeerBuffers::meet(arena, std::span(&buffer, 1), buffer.num_bytes());
  if (!peers) return false;
  fetch(peers->at(root, 0), buffer);
  part_from(arena);
  return true;
}

bool direct_all_gather(Arena& arena, const std::vector<Buffer>& outputs,
                       const Buffer& input, std::size_t most_bytes) {
  const auto self = static_cast<std::size_t>(arena.rank());
  const bool is_overwritten = overlaps_another(input, outputs, self);
  const auto peers =
      PeerBuffers::meet(arena, std::span(&input, is_overwritten ? 0 : 1), most_bytes);
  if (!peers) return false;
  for (std::size_t step = 0; step < outputs.size(); ++step) {
    const std::size_t rank = (self + step) % outputs.size();  // spread the readers
    fetch(peers->at(static_cast<int>(rank), 0), outputs[rank]);
  }
  part_from(arena);
  return true;
}

bool direct_gather(Arena& arena, const std::vector<Buffer>& outputs,
                   const Buffer& input, int root) {
  const auto peers = PeerBuffers::meet(arena, std::span(&input, 1), input.num_bytes());
  if (!peers) return false;
  if (arena.rank() == root) {
    fetch(peers->at(root, 0), outputs[static_cast<std::size_t>(root)]);
    for (int rank = 0; rank < arena.size(); ++rank)
      if (rank != root)
        fetch(peers->at(rank, 0), outputs[static_cast<std::size_t>(rank)]);
  }
  part_from(arena);
  return true;
}

bool direct_reduce_scatter(Arena& arena, const Buffer& output,
                           const std::vector<Buffer>& inputs, ReduceOp op,
                           std::size_t bytes) {
  const auto self = static_cast<std::size_t>(arena.rank());
  const bool is_overwritten = overlaps_another(output, inputs, self);
  const auto peers = PeerBuffers::meet(
      arena, std::span(inputs).first(is_overwritten ? 0 : inputs.size()), bytes);
  if (!peers) return false;
  Reduction reduction(arena, output.dtype, op);
  const Cut blocks = {output.count, kBlock / size_of(output.dtype)};
  for (std::size_t i = 0; i < blocks.rounds(); ++i) {
    for (int rank = 0; rank < arena.size(); ++rank)
      reduction.source(rank) =
          peers->at(rank, self) + blocks.begin(i) * size_of(output.dtype);
    reduction.run(output, blocks.begin(i), blocks.length(i));
  }
  part_from(arena);
  return true;
}

bool direct_all_to_all(Arena& arena, const std::vector<Buffer>& outputs,
                       const std::vector<Buffer>& inputs,
                       const std::function<void()>& check) {
  const auto self = static_cast<std::size_t>(arena.rank());
  bool is_overwritten = false;
  for (std::size_t i = 0; i < outputs.size(); ++i)
    is_overwritten |= overlaps_another(outputs[i], inputs, i == self ? self : kNone);
  const auto peers = PeerBuffers::meet(
      arena, std::span(inputs).first(is_overwritten ? 0 : inputs.size()), kAnySize);
  if (!peers) return false;
  check();
  for (std::size_t step = 0; step < outputs.size(); ++step) {
    const std::size_t rank = (self + step) % outputs.size();  // spread the readers
    fetch(peers->at(static_cast<int>(rank), self), outputs[rank]);
  }
  part_from(arena);
  return true;
}

bool direct_scatter(Arena& arena, const Buffer& output,
                    const std::vector<Buffer>& inputs, int root) {
  const auto self = static_cast<std::size_t>(arena.rank());
  const bool is_overwritten = overlaps_another(output, inputs, self);
  const auto peers = PeerBuffers::meet_root(
      arena, std::span(inputs).first(is_overwritten ? 0 : inputs.size()), root,
      output.num_bytes());
  if (!peers) return false;
  fetch(peers->at(root, self), output);
  part_from(arena);
  return true;
}

}  // namespace allhands
