#include "allhands/hosts/kept_memory.hpp"

#include <algorithm>

namespace allhands {

// Lends the smallest block that is large enough. If there is none, a new block replaces
// the largest one, so that the blocks become as large as operations need them. A block
// that will not be kept replaces none.
KeptMemory::Loan KeptMemory::lend(std::size_t bytes) {
  auto best = blocks_.end(), largest = blocks_.end();
  for (auto it = blocks_.begin(); it != blocks_.end(); ++it) {
    if (largest == blocks_.end() || it->bytes > largest->bytes) largest = it;
    if (it->bytes >= bytes && (best == blocks_.end() || it->bytes < best->bytes))
      best = it;
  }
  Block block;
  if (best != blocks_.end()) {
    block = std::move(*best);
    blocks_.erase(best);
  } else {
    if (largest != blocks_.end() && bytes <= kMostBytes) blocks_.erase(largest);
    block = {std::make_unique_for_overwrite<std::byte[]>(bytes), bytes};
  }
  return Loan(*this, std::move(block));
}

std::size_t KeptMemory::num_bytes() const {
  std::size_t bytes = 0;
  for (const Block& block : blocks_) bytes += block.bytes;
  return bytes;
}

void KeptMemory::take_back(Block block) {
  if (blocks_.size() < kMostBlocks && num_bytes() + block.bytes <= kMostBytes)
    blocks_.push_back(std::move(block));
}

}  // namespace allhands
