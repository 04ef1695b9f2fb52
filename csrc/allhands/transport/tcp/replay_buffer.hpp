// The bytes that one side of a connection has written and the peer may lack: those that
// the peer's host has not confirmed, and those that were not sent yet. When a socket
// breaks, the next one goes on from here. Not thread-safe.
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
  // The positions of the first byte that is kept and of the next byte, counted since
  // the connection began.
  std::uint64_t begin() const { return begin_; }
  std::uint64_t end() const { return begin_ + size_; }
  std::size_t size() const { return size_; }

  // Makes sure that there is memory for this many more bytes.
  void reserve(std::size_t bytes);
  void append(std::span<const std::byte> bytes);
  // Drops the bytes before `to`. If `to` is after end(), the next byte is that one.
  void drop(std::uint64_t to);
  // Fills `parts` with the kept bytes from `from` on, as far as they reach. Returns how
  // many parts were filled.
  std::size_t gather(std::uint64_t from, std::span<iovec> parts) const;
  // Frees spare memory.
  void shrink();

 private:
  static constexpr std::size_t kBlockBytes = std::size_t{64} << 10;
  // Spare blocks that are kept for reuse, at most.
  static constexpr std::size_t kMaxSpares = 32;
  using Block = std::unique_ptr<std::byte[]>;

  void add_block();
  void drop_front_block();

  std::deque<Block> blocks_;
  std::vector<Block> spares_;
  std::size_t at_ = 0;  // position of the first byte in the first block
  std::size_t size_ = 0;
  std::uint64_t begin_ = 0;
};

}  // namespace allhands
