#include "allhands/hosts/bytes.hpp"

#include <cstdint>
#include <cstring>

namespace allhands {

Bytes joined(const std::vector<Bytes>& list) {
  std::size_t total = 0;
  for (const Bytes& part : list) total += sizeof(std::uint64_t) + part.size();
  Bytes bytes;
  bytes.reserve(total);
  for (const Bytes& part : list) {
    const std::uint64_t length = part.size();
    append(bytes, &length, 1);
  }
  for (const Bytes& part : list) append(bytes, part.data(), part.size());
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
