#include "allhands/store/record.hpp"

#include "allhands/base/error.hpp"
#include "allhands/net/little_endian.hpp"
#include "allhands/store/crc32.hpp"
#include "allhands/store/protocol.hpp"

namespace allhands::store {
namespace {

constexpr std::size_t kCrcBytes = 4;
constexpr std::size_t kHeadBytes = kCrcBytes + 1 + 4 + 8;

std::uint32_t key_bytes(std::string_view data) {
  return read_little_endian<std::uint32_t>(data.data() + kCrcBytes + 1);
}

std::uint64_t value_bytes(std::string_view data) {
  return read_little_endian<std::uint64_t>(data.data() + kCrcBytes + 5);
}

bool is_within_limits(std::uint64_t num_key_bytes, std::uint64_t num_value_bytes) {
  return num_key_bytes <= kMaxKeyBytes && num_value_bytes <= kMaxValueBytes;
}

}  // namespace

void append_record(std::string& data, const Record& record) {
  const auto& [kind, key, value] = record;
  if (!is_within_limits(key.size(), value.size()))
    throw Error(ErrorKind::Value,
                "FileStore: a key of " + std::to_string(key.size()) +
                    " bytes with a value of " + std::to_string(value.size()) +
                    ": at most " + std::to_string(kMaxKeyBytes) + " and " +
                    std::to_string(kMaxValueBytes) + " bytes are allowed");
  std::string head(1, static_cast<char>(kind));
  append_little_endian(head, static_cast<std::uint32_t>(key.size()));
  append_little_endian(head, static_cast<std::uint64_t>(value.size()));
  data.reserve(data.size() + kHeadBytes + key.size() + value.size());
  append_little_endian(data, crc32(value, crc32(key, crc32(head))));
  data.append(head).append(key).append(value);
}

std::optional<std::size_t> record_size(std::string_view data) {
  if (data.size() < kHeadBytes) return kHeadBytes;
  if (!is_within_limits(key_bytes(data), value_bytes(data))) return std::nullopt;
  return kHeadBytes + key_bytes(data) + static_cast<std::size_t>(value_bytes(data));
}

std::optional<Record> read_record(std::string_view data) {
  if (data.size() < kHeadBytes || record_size(data) != data.size()) return std::nullopt;
  const auto crc = read_little_endian<std::uint32_t>(data.data());
  if (crc32(data.substr(kCrcBytes)) != crc) return std::nullopt;
  const std::size_t num_key_bytes = key_bytes(data);
  return Record{static_cast<std::uint8_t>(data[kCrcBytes]),
                data.substr(kHeadBytes, num_key_bytes),
                data.substr(kHeadBytes + num_key_bytes)};
}

}  // namespace allhands::store
