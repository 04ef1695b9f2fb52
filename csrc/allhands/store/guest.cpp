#include "allhands/store/guest.hpp"

#include <memory>
#include <string>
#include <utility>

#include "allhands/base/error.hpp"
#include "allhands/net/little_endian.hpp"

namespace allhands::store {
namespace {

constexpr std::size_t kCodeBytes = sizeof(std::uint32_t);
constexpr std::size_t kNumberBytes = sizeof(std::int64_t);

Value shared(std::string text) {
  return std::make_shared<const std::string>(std::move(text));
}

// The first of the fields, which it takes out of them.
std::string take_first(std::vector<std::string>& fields, std::size_t num_bytes) {
  if (fields.empty() || fields.front().size() != num_bytes)
    throw Error(ErrorKind::Network, "no message of a relay");
  std::string first = std::move(fields.front());
  fields.erase(fields.begin());
  return first;
}

}  // namespace

std::vector<Value> as_fields(Message request) {
  std::string head;
  append_little_endian(head, request.code);
  append_little_endian(head, request.number);
  std::vector<Value> fields = {shared(std::move(head))};
  fields.reserve(1 + request.fields.size());
  for (std::string& field : request.fields) fields.push_back(shared(std::move(field)));
  return fields;
}

Message request_of_guest(Message relayed) {
  const std::string head = take_first(relayed.fields, kCodeBytes + kNumberBytes);
  return {read_little_endian<std::uint32_t>(head.data()),
          read_little_endian<std::int64_t>(head.data() + kCodeBytes),
          std::move(relayed.fields)};
}

std::vector<Value> as_fields(std::int64_t number, std::vector<Value> fields) {
  std::string head;
  append_little_endian(head, number);
  fields.insert(fields.begin(), shared(std::move(head)));
  return fields;
}

std::int64_t take_number(std::vector<std::string>& fields) {
  return read_little_endian<std::int64_t>(take_first(fields, kNumberBytes).data());
}

}  // namespace allhands::store
