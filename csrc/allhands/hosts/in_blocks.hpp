// Large operations on arrays of any layout, and on lists, block by block. A block that
// is contiguous is used where it lies; another one is packed into kept memory, and its
// result unpacked from there. So an operation takes no memory of the arrays' size.
#pragma once

#include <algorithm>
#include <cstddef>

#include "allhands/arena/rounds.hpp"
#include "allhands/arena/row.hpp"
#include "allhands/hosts/crossing.hpp"

namespace allhands {

// Enough that a block takes far longer than the ranks' meetings for it, and few enough
// that the caches keep it.
inline constexpr std::size_t kBlockBytes = std::size_t{4} << 20;

// The blocks of a list of `count` elements that each rank has, or that each of `size`
// ranks gets: those of all ranks together are a block.
inline Cut blocks_of(std::size_t count, std::size_t element, int size) {
  const std::size_t most =
      std::max<std::size_t>(1, kBlockBytes / element / index(size));
  return {count, std::min(count, most)};
}

// Calls run(from, to), both contiguous, for one block of `input` and `output` after the
// other. `input` may be `output`, element by element; otherwise they share no memory.
// An output without arrays is only memory to work in. All ranks have the same blocks,
// whatever the layouts of their arrays.
template <class Run>
void in_blocks(const Crossing& crossing, const Row& input, const Row& output, Run run) {
  const DType dtype = input.dtype();
  const Cut cut = {input.count(), kBlockBytes / size_of(dtype)};
  const KeptMemory::Loan memory =
      crossing.memory.lend(std::min(input.num_bytes(), kBlockBytes));
  for (std::size_t i = 0; i < cut.rounds(); ++i) {
    const std::size_t at = cut.begin(i), count = cut.length(i);
    std::byte* const source = input.contiguous(at, count);
    std::byte* const target = output.contiguous(at, count);
    if (source == nullptr) input.pack(at, count, memory.data());
    const auto block = [&](std::byte* there) {
      return Buffer{there != nullptr ? there : memory.data(), dtype, count, {}, 0};
    };
    run(block(source), block(target));
    if (target == nullptr && !output.arrays().empty())
      output.unpack(memory.data(), at, count);
  }
}

}  // namespace allhands
