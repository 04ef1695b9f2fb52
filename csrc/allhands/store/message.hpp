// One message of the store's protocol, and its way over a non-blocking socket.
//
// On the wire, integers little-endian:
//   u32 code (Op or Status), u32 number of fields, i64 number,
//   u32 length of each field, then the fields' bytes one after the other.
// A server takes memory for a field only as its bytes arrive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace allhands::store {

// A request or a reply of the store's protocol.
struct Message {
  std::uint32_t code = 0;
  std::int64_t number = 0;
  std::vector<std::string> fields;
};

// Puts messages together from pieces of any size. Not thread-safe.
class MessageReader {
 public:
  // A sender that is trusted gets the memory for a field at once, not as it comes.
  explicit MessageReader(bool is_trusted) : is_trusted_(is_trusted) {}

  // Eats from the front of `bytes`, no further than the end of one message; true when
  // it is complete. Throws Error(Network) on what can be no message.
  bool feed(std::string_view& bytes);
  // The complete message.
  Message& message() { return message_; }
  // Makes ready for the next message; keeps what memory is worth keeping for it.
  void restart();

 private:
  bool feed_head(std::string_view& bytes);
  bool feed_field(std::string_view& bytes);

  bool is_trusted_;
  bool has_head_ = false;
  std::string head_;                    // as it came
  std::vector<std::uint32_t> lengths_;  // of the fields, from head_
  std::size_t num_read_ = 0;            // fields that are complete
  Message message_;
};

// Sends one message, as much at a time as the socket takes. Not thread-safe.
class MessageWriter {
 public:
  // The fields' bytes must stay where they are until is_done(). Throws Error(Value)
  // where the message is over the protocol's limits.
  void start(std::uint32_t code, std::int64_t number,
             const std::vector<std::string_view>& fields);
  bool is_done() const { return next_ == pieces_.size(); }
  // How many bytes it has sent since this was asked last.
  std::size_t take_sent() { return std::exchange(sent_, 0); }
  // True: done. False: the socket takes no more now. Throws Error(Network).
  bool send(int socket);

 private:
  void drop_sent(std::size_t num_bytes);

  std::string head_;
  std::vector<std::string_view>
      pieces_;  // head_, then the fields; the next one trimmed
  std::size_t next_ = 0;
  std::size_t sent_ = 0;
};

}  // namespace allhands::store
