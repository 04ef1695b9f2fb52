#include "allhands/kernels/copy_bytes.hpp"

#include <algorithm>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace allhands {

#if defined(__SSE2__)
namespace {

constexpr std::size_t kCacheLine = 64;

void copy_line(std::byte* to, const std::byte* from) {
  const auto* const in = reinterpret_cast<const __m128i*>(from);
  auto* const out = reinterpret_cast<__m128i*>(to);
  const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1),
                c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
  _mm_store_si128(out, a);
  _mm_store_si128(out + 1, b);
  _mm_store_si128(out + 2, c);
  _mm_store_si128(out + 3, d);
}

}  // namespace

void copy_by_vectors(std::byte* to, const std::byte* from, std::size_t bytes) {
  const std::size_t head =
      std::min(bytes, -reinterpret_cast<std::uintptr_t>(to) % kCacheLine);
  std::memcpy(to, from, head);
  std::size_t at = head;
  for (; bytes - at >= kCacheLine; at += kCacheLine) copy_line(to + at, from + at);
  std::memcpy(to + at, from + at, bytes - at);
}
#else
void copy_by_vectors(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}
#endif

}  // namespace allhands
