#include "allhands/arena/row.hpp"

#include <algorithm>
#include <utility>

namespace allhands {
std::size_t count_of(Buffers list) {
  std::size_t count = 0;
  for (const Buffer& buffer : list) count += buffer.count;
  return count;
}

DType dtype_of(Buffers list) {
  return list.empty() ? DType::UInt8 : list.front().dtype;
}

Row::Row(Buffers arrays) : arrays_(arrays), count_(count_of(arrays)) {
  if (arrays.size() < 2) return;
  starts_.reserve(arrays.size());
  std::size_t at = 0;
  for (const Buffer& buffer : arrays) {
    starts_.push_back(at);
    at += buffer.count;
  }
}

// The last array that begins at this element or before it: empty arrays are passed
// over.
std::size_t Row::array_at(std::size_t at) const {
  if (starts_.empty()) return 0;
  return static_cast<std::size_t>(std::ranges::upper_bound(starts_, at) -
                                  starts_.begin()) -
         1;
}

// Calls each(buffer, offset in it, length, bytes before it) for every piece of the
// elements [at, at + count).
template <class Each>
void Row::for_pieces(std::size_t at, std::size_t count, Each each) const {
  const std::size_t end = at + count, first = at;
  for (std::size_t i = array_at(at); at < end; ++i) {
    const Buffer& buffer = arrays_[i];
    const std::size_t begin = at - start(i);
    const std::size_t length = std::min(buffer.count - begin, end - at);
    if (length > 0) each(buffer, begin, length, (at - first) * size_of(buffer.dtype));
    at += length;
  }
}

void Row::pack(std::size_t at, std::size_t count, void* to) const {
  for_pieces(at, count,
             [&](const Buffer& buffer, std::size_t begin, std::size_t length,
                 std::size_t before) {
               allhands::pack(buffer, begin, length,
                              static_cast<std::byte*>(to) + before);
             });
}

void Row::unpack(const void* from, std::size_t at, std::size_t count,
                 Stores stores) const {
  for_pieces(at, count,
             [&](const Buffer& buffer, std::size_t begin, std::size_t length,
                 std::size_t before) {
               allhands::unpack(static_cast<const std::byte*>(from) + before, buffer,
                                begin, length, stores);
             });
}

std::byte* Row::contiguous(std::size_t at, std::size_t count) const {
  if (arrays_.empty()) return nullptr;
  const std::size_t i = array_at(at);
  const Buffer& buffer = arrays_[i];
  const std::size_t begin = at - start(i);
  if (!buffer.is_contiguous() || begin + count > buffer.count) return nullptr;
  return buffer.at_byte(begin * size_of(buffer.dtype));
}

Buffers part_of(const std::vector<Buffer>& list, int rank, std::size_t length) {
  return Buffers(list).subspan(static_cast<std::size_t>(rank) * length, length);
}

std::vector<Row> rows_of(const std::vector<Buffer>& list, int size) {
  const std::size_t length = list.size() / static_cast<std::size_t>(size);
  std::vector<Row> rows;
  for (int rank = 0; rank < size; ++rank)
    rows.emplace_back(part_of(list, rank, length));
  return rows;
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
