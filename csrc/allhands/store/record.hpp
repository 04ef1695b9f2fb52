// A record of FileStore's file: a change of its table, or something about its users.
//
//   u32 CRC-32 of all that follows, u8 kind, u32 bytes of the key, u64 bytes of the
//   value (little-endian), the key in UTF-8, the value
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace allhands::store {

// A record as it is in the file; it points into the bytes that it was read from.
struct Record {
  std::uint8_t kind;
  std::string_view key;
  std::string_view value;
};

// Throws Error(Value) if the key or the value exceeds the store's limits.
void append_record(std::string& data, const Record& record);

// The number of bytes of the record that `data` begins with, or of the record's head
// while that is incomplete. None: this can be no record.
std::optional<std::size_t> record_size(std::string_view data);

// `data` must hold all of a record. None: the record is damaged.
std::optional<Record> read_record(std::string_view data);

}  // namespace allhands::store
