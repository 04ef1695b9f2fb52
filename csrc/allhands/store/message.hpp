// One message of the store's protocol, and how it is sent over a non-blocking socket.
//
// On the wire, integers little-endian:
//   u32 code (Op or Status), u32 number of fields, i64 number,
//   u32 length of each field, then the fields' bytes one after the other.
// A server allocates memory for a field only as its bytes arrive.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace allhands::store {

// A request or a reply of the store's protocol.
struct Message {
  std::uint32_t code = 0;
  std::int64_t number = 0;
  std::vector<std::string> fields;
};

// The first bytes of a message, up to those of its fields, which have these lengths.
// Throws Error(Value) if the message exceeds the protocol's limits.
std::string encode_head(std::uint32_t code, std::int64_t number,
                        const std::vector<std::size_t>& lengths);

// Assembles messages from pieces of any size. Not thread-safe.
class MessageReader {
 public:
  // For a trusted sender, the memory of a field is allocated at once, not as its bytes
  // arrive.
  explicit MessageReader(bool is_trusted) : is_trusted_(is_trusted) {}

  // Takes bytes from the front of `bytes`, up to the end of one message. Returns true
  // when the message is complete. Throws Error(Network) if the bytes can be no message.
  bool feed(std::string_view& bytes);
  // Whether some bytes of a message have come.
  bool has_begun() const { return !head_.empty(); }
  // The complete message.
  Message& message() { return message_; }
  // Prepares for the next message; keeps memory that is worth keeping for it.
  void restart();

 private:
  bool feed_head(std::string_view& bytes);
  bool feed_field(std::string_view& bytes);

  bool is_trusted_;
  bool has_head_ = false;
  std::string head_;                    // as received
  std::vector<std::uint32_t> lengths_;  // of the fields, from head_
  std::size_t num_read_ = 0;            // fields that are complete
  Message message_;
};

// The most pieces that one system call sends.
inline constexpr std::size_t kMaxPieces = 64;
// Sends what the socket takes of `pieces` now. Returns the number of bytes, or nothing
// if it takes none. Throws Error(Network).
std::optional<std::size_t> send_now(int socket, std::span<iovec> pieces);

// Sends one message, as much at a time as the socket takes. Not thread-safe.
class MessageWriter {
 public:
  // The bytes of the fields must stay where they are until is_done(). Throws
  // Error(Value) if the message exceeds the protocol's limits.
  void start(std::uint32_t code, std::int64_t number,
             const std::vector<std::string_view>& fields);
  bool is_done() const { return next_ == pieces_.size(); }
  // Returns true when done, and false if the socket takes no more now. Throws
  // Error(Network).
  bool send(int socket);

 private:
  void drop_sent(std::size_t num_bytes);

  std::string head_;
  std::vector<std::string_view>
      pieces_;  // head_, then the fields; the next one is trimmed
  std::size_t next_ = 0;
};

}  // namespace allhands::store
