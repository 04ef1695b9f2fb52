// Memory for parts of large operations, kept from one operation to the next. The system
// clears the pages of fresh memory, which takes longer than the copies into it.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace allhands {

// Thread rule: one thread at a time.
class KeptMemory {
  struct Block {
    std::unique_ptr<std::byte[]> data;
    std::size_t bytes = 0;
  };

 public:
  // Memory that the holder may use. It must not outlive the KeptMemory.
  class Loan {
   public:
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    ~Loan() { lender_.take_back(std::move(block_)); }

    std::byte* data() const { return block_.data.get(); }

   private:
    friend class KeptMemory;
    Loan(KeptMemory& lender, Block block) : lender_(lender), block_(std::move(block)) {}

    KeptMemory& lender_;
    Block block_;
  };

  KeptMemory() { blocks_.reserve(kMostBlocks); }
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;

  // At least `bytes` of memory, with anything in it.
  Loan lend(std::size_t bytes);

  // The bytes that are kept and not lent.
  std::size_t num_bytes() const;

  // The most bytes that are kept. What exceeds them is freed at the end of its loan.
  static constexpr std::size_t kMostBytes = std::size_t{16} << 20;

 private:
  static constexpr std::size_t kMostBlocks = 16;

  void take_back(Block block);

  std::vector<Block> blocks_;
};

}  // namespace allhands
