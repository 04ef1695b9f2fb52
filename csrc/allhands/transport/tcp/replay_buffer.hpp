// The bytes that one side of a connection has written, from the first one on that the
// peer may lack: those that the peer's host has not confirmed, and those that were not
// sent yet. When a socket breaks, the next one goes on from here. Not thread-safe.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

namespace allhands {

class ReplayBuffer {
 public:
  // The first byte that is kept, and the one that comes next, counted since the
  // connection began.
  std::uint64_t begin() const { return begin_; }
  std::uint64_t end() const { return begin_ + size_; }
  std::size_t size() const { return size_; }

  // There is memory for so many more.
  void reserve(std::size_t bytes);
  void append(std::span<const std::byte> bytes);
  // Nothing before `to` is needed any more; after end(): the next byte is that one.
  void drop(std::uint64_t to);
  // What is kept from `from` on, as far as `parts` reach. Returns how many parts.
  std::size_t gather(std::uint64_t from, std::span<iovec> parts) const;
  // Gives memory back that is kept for what comes.
  void shrink();

 private:
  static constexpr std::size_t kBlockBytes = std::size_t{64} << 10;
  // Memory that was used lately is used again, up to so much of it.
  static constexpr std::size_t kMaxSpares = 32;
  using Block = std::unique_ptr<std::byte[]>;

  void add_block();
  void drop_front_block();

  std::deque<Block> blocks_;
  std::vector<Block> spares_;
  std::size_t at_ = 0;  // of the first byte, in the first block
  std::size_t size_ = 0;
  std::uint64_t begin_ = 0;
};

}  // namespace allhands
