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

// A record as its file has it; it points into the bytes that it was read from.
struct Record {
  std::uint8_t kind;
  std::string_view key;
  std::string_view value;
};

// Throws Error(Value) where key or value is over the store's limits.
void append_record(std::string& data, const Record& record);

// How many bytes the record has that `data` begins with; those of its head while that
// is incomplete. None: this can be no record.
std::optional<std::size_t> record_size(std::string_view data);

// `data` is all of a record. None: it is damaged.
std::optional<Record> read_record(std::string_view data);

}  // namespace allhands::store
