#include "allhands/store/crc32.hpp"

#include <array>
#include <cstddef>
#include <cstring>

#include "allhands/net/little_endian.hpp"

namespace allhands::store {
namespace {

// Takes eight bytes per step ("slicing by 8"): table k holds the effect of a byte on
// the CRC when k more bytes follow it.
constexpr std::size_t kStep = 8;
using Tables = std::array<std::array<std::uint32_t, 256>, kStep>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320u : 0u);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < kStep; ++k)
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t crc = tables[k - 1][byte];
      tables[k][byte] = (crc >> 8) ^ tables[0][crc & 0xff];
    }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

std::uint32_t crc32(std::string_view bytes, std::uint32_t before) {
  std::uint32_t crc = ~before;
  const char* at = bytes.data();
  const char* const end = at + bytes.size();
  for (; end - at >= static_cast<std::ptrdiff_t>(kStep); at += kStep) {
    const auto word = read_little_endian<std::uint64_t>(at) ^ crc;
    crc = 0;
    for (std::size_t k = 0; k < kStep; ++k)
      crc ^= kTables[kStep - 1 - k][(word >> (8 * k)) & 0xff];
  }
  for (; at != end; ++at)
    crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<unsigned char>(*at)) & 0xff];
  return ~crc;
}

}  // namespace allhands::store
