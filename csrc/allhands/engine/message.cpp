#include "allhands/engine/message.hpp"

#include <cstring>
#include <string>

#include "allhands/base/mixed.hpp"
#include "allhands/transport/link.hpp"

namespace allhands {
namespace {

// A digest of all fields before it.
std::uint64_t check_of(const ControlMessage& control) {
  const Message& message = control.message;
  return mixed({
      control.key,
      message.count,
      static_cast<std::uint64_t>(message.number),
      std::uint64_t{message.send_id} << 32 | message.recv_id,
      static_cast<std::uint64_t>(message.context) << 16 |
          static_cast<std::uint64_t>(message.kind) << 8 |
          static_cast<std::uint64_t>(message.dtype),
  });
}

bool has_data(MessageKind kind) {
  return kind == MessageKind::Eager || kind == MessageKind::Data;
}

[[noreturn]] void throw_senseless(const char* what, std::uint64_t number) {
  throw LinkError(std::string("a message makes no sense: ") + what + " is " +
                  std::to_string(number));
}

}  // namespace

ControlMessage::ControlMessage(const Message& message, ArrayKey key)
    : message(message), key(key) {
  check = check_of(*this);
}

Message read_message(std::span<const std::byte> record, const Landed& landed) {
  Message message;
  if (record.size() < sizeof(message)) throw_senseless("its length", record.size());
  std::memcpy(&message, record.data(), sizeof(message));
  if (message.kind > MessageKind::Cancel)
    throw_senseless("its kind", static_cast<std::uint64_t>(message.kind));
  if (static_cast<int>(message.dtype) >= kNumDTypes)
    throw_senseless("its dtype", static_cast<std::uint64_t>(message.dtype));
  if (static_cast<std::uint32_t>(message.context) >= kNumContexts)
    throw_senseless("its context", static_cast<std::uint64_t>(message.context));
  if (!has_data(message.kind) && record.size() < sizeof(ControlMessage))
    throw_senseless("its length", record.size());
  const std::size_t num_landed = landed.bytes / size_of(message.dtype);
  if (landed.key != kNoLanding &&
      (!has_data(message.kind) || message.count != num_landed))
    throw_senseless("what has landed of it", landed.bytes);
  if (landed.key == kNoLanding && has_data(message.kind) &&
      message.count > (record.size() - sizeof(message)) / size_of(message.dtype))
    throw_senseless("its count", message.count);
  return message;
}

ArrayKey read_key(std::span<const std::byte> record) {
  ControlMessage control;
  std::memcpy(&control, record.data(), sizeof(control));
  if (control.check != check_of(control)) throw_senseless("its check", control.check);
  return control.key;
}

}  // namespace allhands
