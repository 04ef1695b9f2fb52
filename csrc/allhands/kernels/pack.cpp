#include "allhands/kernels/pack.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "allhands/kernels/copy_bytes.hpp"
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace allhands {
namespace {

// The smallest list of dimensions that visits the same addresses in the same order.
std::vector<Dimension> collapse(const std::vector<Dimension>& dimensions) {
  std::vector<Dimension> collapsed;
  for (const Dimension& inner : dimensions) {
    if (inner.size == 1) continue;
    if (!collapsed.empty() && collapsed.back().stride == inner.size * inner.stride) {
      collapsed.back() = {collapsed.back().size * inner.size, inner.stride};
    } else {
      collapsed.push_back(inner);
    }
  }
  if (collapsed.empty()) collapsed.push_back({1, 0});
  return collapsed;
}

// A position in a strided array that moves forward in C order.
class Cursor {
 public:
  Cursor(const Buffer& buffer, std::size_t offset)
      : dimensions_(collapse(buffer.dimensions)),
        index_(dimensions_.size()),
        address_(static_cast<char*>(buffer.data)) {
    auto rest = static_cast<std::int64_t>(offset);
    for (std::size_t d = dimensions_.size(); d-- > 0;) {
      index_[d] = rest % dimensions_[d].size;
      rest /= dimensions_[d].size;
      address_ += index_[d] * dimensions_[d].stride;
    }
  }

  char* address() const { return address_; }
  std::int64_t stride() const { return dimensions_.back().stride; }
  // The number of elements from here to the end of the innermost dimension, which are
  // one stride apart.
  std::size_t run() const {
    return static_cast<std::size_t>(dimensions_.back().size - index_.back());
  }

  void advance(std::size_t count) {  // at most run()
    std::size_t d = dimensions_.size() - 1;
    move(d, static_cast<std::int64_t>(count));
    for (; index_[d] == dimensions_[d].size && d > 0; --d) {
      move(d, -dimensions_[d].size);
      move(d - 1, 1);
    }
  }

 private:
  void move(std::size_t d, std::int64_t steps) {
    index_[d] += steps;
    address_ += steps * dimensions_[d].stride;
  }

  std::vector<Dimension> dimensions_;
  std::vector<std::int64_t> index_;
  char* address_;
};

template <std::size_t kSize>
void copy_strided(char* to, std::int64_t to_stride, const char* from,
                  std::int64_t from_stride, std::size_t count) {
  const auto end = static_cast<std::int64_t>(count);
  for (std::int64_t i = 0; i < end; ++i)
    std::memcpy(to + i * to_stride, from + i * from_stride, kSize);
}

void copy_run(std::size_t size, char* to, std::int64_t to_stride, const char* from,
              std::int64_t from_stride, std::size_t count) {
  if (to_stride == from_stride) {  // both are the element size: one side is contiguous
    copy_bytes(to, from, count * size);
    return;
  }
  switch (size) {
    case 1:
      return copy_strided<1>(to, to_stride, from, from_stride, count);
    case 2:
      return copy_strided<2>(to, to_stride, from, from_stride, count);
    case 4:
      return copy_strided<4>(to, to_stride, from, from_stride, count);
    case 8:
      return copy_strided<8>(to, to_stride, from, from_stride, count);
    default:
      return copy_strided<16>(to, to_stride, from, from_stride, count);
  }
}

#if defined(__SSE2__)
// Every x86-64 CPU has these instructions; wider ones are no faster, as memory is the
// limit.
// Only few loads can be in flight, so the data is prefetched.
void stream(char* to, const char* from, std::size_t bytes) {
  constexpr std::size_t kVector = sizeof(__m128i);
  constexpr std::size_t kPrefetch = 4096, kCacheLine = 64;
  const std::size_t head = -reinterpret_cast<std::uintptr_t>(to) % kVector;
  if (bytes < head + kVector) {
    std::memcpy(to, from, bytes);
    return;
  }
  std::memcpy(to, from, head);
  std::size_t at = head;
  for (; at + kVector <= bytes; at += kVector) {
    if (at % kCacheLine < kVector)
      _mm_prefetch(from + std::min(at + kPrefetch, bytes), _MM_HINT_T0);
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + at),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at)));
  }
  std::memcpy(to + at, from + at, bytes - at);
  _mm_sfence();  // before anything tells others that the data is there
}
#else
void stream(char* to, const char* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}
#endif

void write_bytes(char* to, const char* from, std::size_t bytes, Stores stores) {
  if (to == from || bytes == 0) return;
  const bool is_apart = to + bytes <= from || from + bytes <= to;
  if (!is_apart)
    std::memmove(to, from, bytes);
  else if (stores == Stores::Streaming)
    stream(to, from, bytes);
  else
    copy_bytes(to, from, bytes);
}

}  // namespace

void pack(const Buffer& from, std::size_t offset, std::size_t count, void* to) {
  if (count == 0) return;
  const std::size_t size = size_of(from.dtype);
  char* out = static_cast<char*>(to);
  if (from.is_contiguous()) {
    copy_bytes(out, static_cast<const char*>(from.data) + offset * size, count * size);
    return;
  }
  for (Cursor cursor(from, from.first + offset); count > 0;) {
    const std::size_t run = std::min(cursor.run(), count);
    copy_run(size, out, static_cast<std::int64_t>(size), cursor.address(),
             cursor.stride(), run);
    out += run * size;
    count -= run;
    cursor.advance(run);
  }
}

void unpack(const void* from, const Buffer& to, std::size_t offset, std::size_t count,
            Stores stores) {
  if (count == 0) return;
  const std::size_t size = size_of(to.dtype);
  const char* in = static_cast<const char*>(from);
  if (to.is_contiguous()) {
    write_bytes(static_cast<char*>(to.data) + offset * size, in, count * size, stores);
    return;
  }
  for (Cursor cursor(to, to.first + offset); count > 0;) {
    const std::size_t run = std::min(cursor.run(), count);
    copy_run(size, cursor.address(), cursor.stride(), in,
             static_cast<std::int64_t>(size), run);
    in += run * size;
    count -= run;
    cursor.advance(run);
  }
}

void copy(const Buffer& from, const Buffer& to, std::size_t offset, std::size_t count,
          Stores stores) {
  const std::size_t size = size_of(from.dtype);
  if (from.is_contiguous() && to.is_contiguous()) {
    const char* in = static_cast<const char*>(from.data) + offset * size;
    char* out = static_cast<char*>(to.data) + offset * size;
    write_bytes(out, in, count * size, stores);
    return;
  }
  if (from.is_contiguous())
    return unpack(static_cast<const char*>(from.data) + offset * size, to, offset,
                  count);
  if (to.is_contiguous())
    return pack(from, offset, count, static_cast<char*>(to.data) + offset * size);
  std::byte piece[4096];
  for (const std::size_t most = sizeof(piece) / size; count > 0;) {
    const std::size_t length = std::min(most, count);
    pack(from, offset, length, piece);
    unpack(piece, to, offset, length);
    offset += length;
    count -= length;
  }
}

}  // namespace allhands
