// The bytes that one side of a connection has written and the peer may lack: those that
// the peer's host has not confirmed, and those that were not sent yet. When a socket
// breaks, the next one goes on from here. Not thread-safe.
//
// Most bytes are copies. Those of large arrays may be lent: they stay in the array
// until keep_lent(), and by then most of them were confirmed and need no copy.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace allhands {

class ReplayBuffer {
 public:
  // The positions of the first byte that is kept and of the next byte, counted since
  // the connection began.
  std::uint64_t begin() const { return begin_; }
  std::uint64_t end() const { return begin_ + size_; }
  std::size_t size() const { return size_; }
  // The position of the first lent byte; end() if there is none.
  std::uint64_t first_lent() const;

  // Makes sure that there is memory for this many more bytes, which come in at most
  // `num_parts` calls of append() and lend().
  void reserve(std::size_t bytes, std::size_t num_parts);
  // These two need no more memory than was reserved.
  void append(std::span<const std::byte> bytes);
  // The bytes must stay as they are until they are dropped or keep_lent() is called.
  void lend(std::span<const std::byte> bytes);
  // Copies all bytes that are still lent. Needs no more memory.
  void keep_lent() noexcept;
  // Drops the bytes before `to`. If `to` is after end(), the next byte is that one.
  void drop(std::uint64_t to);
  // Fills `parts` with the kept bytes from `from` on, as far as they reach. Returns how
  // many parts were filled.
  std::size_t gather(std::uint64_t from, std::span<iovec> parts) const;
  // Frees spare memory.
  void shrink();

 private:
  static constexpr std::size_t kBlockBytes = std::size_t{64} << 10;
  // Spare blocks that are kept for reuse, at most, beside those that lent bytes need.
  static constexpr std::size_t kMaxSpares = 32;
  using Block = std::shared_ptr<std::byte[]>;  // several segments share one

  struct Segment {
    std::span<const std::byte> bytes;
    Block block;  // what they lie in; null: they are lent
  };

  // The blocks that copies of so many bytes take at most.
  static std::size_t blocks_for(std::size_t bytes) {
    return (bytes + kBlockBytes - 1) / kBlockBytes;
  }
  Segment copy(std::span<const std::byte> bytes);
  void drop_front(std::size_t num_segments);
  void reuse(Block block);

  std::vector<Segment> segments_;
  Block block_;  // the one that is being filled; may be null
  std::size_t filled_ = 0;
  std::vector<Block> spares_;
  std::size_t size_ = 0;
  std::size_t lent_ = 0;  // bytes
  std::uint64_t begin_ = 0;
};

}  // namespace allhands
