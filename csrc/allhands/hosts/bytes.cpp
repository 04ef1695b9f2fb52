#include "allhands/hosts/bytes.hpp"

#include <cstdint>
#include <cstring>

namespace allhands {

void append_list(Bytes& bytes, const std::vector<BytesView>& list) {
  bytes.reserve(bytes.size() + bytes_of_list(list));
  for (const BytesView part : list) {
    const std::uint64_t length = part.size();
    append(bytes, &length, 1);
  }
  for (const BytesView part : list) append(bytes, part.data(), part.size());
}

std::size_t bytes_of_list(const std::vector<BytesView>& list) {
  std::size_t bytes = 0;
  for (const BytesView part : list) bytes += sizeof(std::uint64_t) + part.size();
  return bytes;
}

std::optional<std::vector<BytesView>> parts_of(BytesView bytes, std::size_t length) {
  if (bytes.size() / sizeof(std::uint64_t) < length) return std::nullopt;
  BytesView rest = bytes.subspan(length * sizeof(std::uint64_t));
  std::vector<BytesView> parts;
  for (std::size_t i = 0; i < length; ++i) {
    std::uint64_t size;
    std::memcpy(&size, bytes.data() + i * sizeof size, sizeof size);
    if (size > rest.size()) return std::nullopt;
    parts.push_back(rest.first(size));
    rest = rest.subspan(size);
  }
  if (!rest.empty()) return std::nullopt;
  return parts;
}

}  // namespace allhands
