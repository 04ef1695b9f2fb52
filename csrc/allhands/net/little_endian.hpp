// Integers on the wire are little-endian, whatever the host is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace allhands {

template <typename Integer>
void append_little_endian(std::string& out, Integer value) {
  const auto bits = static_cast<std::make_unsigned_t<Integer>>(value);
  for (std::size_t i = 0; i < sizeof(Integer); ++i)
    out.push_back(static_cast<char>(bits >> 8 * i));
}

template <typename Integer>
Integer read_little_endian(const char* bytes) {
  std::make_unsigned_t<Integer> bits = 0;
  for (std::size_t i = 0; i < sizeof(Integer); ++i)
    bits |=
        static_cast<std::make_unsigned_t<Integer>>(static_cast<unsigned char>(bytes[i]))
        << 8 * i;
  return static_cast<Integer>(bits);
}

}  // namespace allhands
