// Copies move just the bytes that they should, however source and target lie to each
// other within their pages. Only on AMD's CPUs does the way of a peer's memory depend
// on that.
#include "allhands/kernels/copy_bytes.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "allhands/transport/shm/peer_memory.hpp"
#include "check.hpp"

using namespace allhands;

namespace {

constexpr std::size_t kPage = 4096, kRoom = 5 * kPage;
constexpr std::size_t kAround = 64;  // must stay as it was
constexpr auto kOld = std::byte{0xee};

// `kRoom` bytes from the start of a page on.
std::byte* page_of(std::vector<std::byte>& memory) {
  memory.assign(kRoom + kPage, kOld);
  return memory.data() + -reinterpret_cast<std::uintptr_t>(memory.data()) % kPage;
}

std::byte value(std::size_t i) { return static_cast<std::byte>(i * 31 + i / 251); }

// Calls copy(to, from, bytes) for targets `behind` the source within their pages.
template <class Copy>
void check_copies(Copy copy) {
  std::vector<std::byte> memory, other;
  std::byte* const source = page_of(memory);
  for (std::size_t i = 0; i < kRoom; ++i) source[i] = value(i);
  for (const std::size_t bytes : {0u, 1u, 2047u, 2048u, 4096u, 4127u, 9001u})
    for (const std::size_t start : {0u, 16u, 63u})
      for (const std::size_t behind : {0u, 1u, 8u, 16u, 31u, 32u, 100u, 4095u}) {
        std::byte* const page = page_of(other);
        std::byte* const to = page + kAround + start + behind;
        const std::byte* const from = source + kAround + start;
        copy(to, from, bytes);
        CHECK(std::equal(from, from + bytes, to));
        const auto is_old = [](std::byte each) { return each == kOld; };
        CHECK(std::all_of(page, to, is_old));
        CHECK(std::all_of(to + bytes, page + kRoom, is_old));
      }
}

void test_where_it_is_slow() {
  for (const std::uintptr_t from : {0u, 5u, 4090u}) {
    for (const std::uintptr_t behind : {1u, 16u, 31u, 4097u, 3 * 4096u + 31u})
      CHECK(is_close_behind(from + behind, from));
    for (const std::uintptr_t behind : {0u, 32u, 4095u, 4096u, 8192u + 32u})
      CHECK(!is_close_behind(from + behind, from));
  }
}

}  // namespace

int main() {
  test_where_it_is_slow();
  check_copies([](void* to, const void* from, std::size_t bytes) {
    copy_bytes(to, from, bytes);
  });
  check_copies([](std::byte* to, const std::byte* from, std::size_t bytes) {
    copy_by_vectors(to, from, bytes);
  });
  check_copies([](void* to, const void* from, std::size_t bytes) {
    const auto address = reinterpret_cast<std::uint64_t>(from);
    CHECK(read_memory_of(::getpid(), address, to, bytes) == PeerRead::Done);
  });
  check_copies([](void* to, const std::byte* from, std::size_t bytes) {
    const auto address = reinterpret_cast<std::uint64_t>(to);
    CHECK(write_memory_of(::getpid(), address, const_cast<std::byte*>(from), bytes));
  });
}
