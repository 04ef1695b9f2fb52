// CRC-32 as in zlib and gzip (ISO 3309, polynomial 0x04c11db7 reflected).
#pragma once

#include <cstdint>
#include <string_view>

namespace allhands::store {

// The CRC of `bytes` after other bytes, whose CRC is `before`.
std::uint32_t crc32(std::string_view bytes, std::uint32_t before = 0);

}  // namespace allhands::store
