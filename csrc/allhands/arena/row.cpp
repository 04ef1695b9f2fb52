#include "allhands/arena/row.hpp"

#include <algorithm>
#include <utility>

namespace allhands {
namespace {

// Calls each(buffer, offset in it, length, offset in the range) for every piece of the
// elements [at, at + count) of all arrays in a row.
template <class Each>
void for_pieces(Buffers list, std::size_t at, std::size_t count, Each each) {
  std::size_t done = 0;
  for (const Buffer& buffer : list) {
    if (done == count) return;
    if (at >= buffer.count) {
      at -= buffer.count;
      continue;
    }
    const std::size_t length = std::min(buffer.count - at, count - done);
    each(buffer, at, length, done);
    done += length;
    at = 0;
  }
}

}  // namespace

std::size_t count_of(Buffers list) {
  std::size_t count = 0;
  for (const Buffer& buffer : list) count += buffer.count;
  return count;
}

DType dtype_of(Buffers list) {
  return list.empty() ? DType::UInt8 : list.front().dtype;
}

void pack_row(Buffers from, std::size_t at, std::size_t count, std::byte* to) {
  for_pieces(from, at, count,
             [&](const Buffer& buffer, std::size_t begin, std::size_t length,
                 std::size_t done) {
               pack(buffer, begin, length, to + done * size_of(buffer.dtype));
             });
}

void unpack_row(const std::byte* from, Buffers to, std::size_t at, std::size_t count,
                Stores stores) {
  for_pieces(to, at, count,
             [&](const Buffer& buffer, std::size_t begin, std::size_t length,
                 std::size_t done) {
               unpack(from + done * size_of(buffer.dtype), buffer, begin, length,
                      stores);
             });
}

Buffers part_of(const std::vector<Buffer>& list, int rank, std::size_t length) {
  return Buffers(list).subspan(static_cast<std::size_t>(rank) * length, length);
}

DType common_dtype(const std::vector<Buffer>& list) {
  for (const Buffer& buffer : list)
    if (!is_complex(buffer.dtype)) return buffer.dtype;
  return dtype_of(list);
}

std::vector<Buffer> in_common_dtype(std::vector<Buffer> list) {
  const DType dtype = common_dtype(list);
  for (Buffer& buffer : list)
    if (buffer.dtype != dtype) buffer = view_as_real(std::move(buffer));
  return list;
}

}  // namespace allhands
