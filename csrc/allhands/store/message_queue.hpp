// Messages that wait to be sent over one non-blocking socket, in order. Several of them
// go by one system call. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "allhands/store/table.hpp"

namespace allhands::store {

// A queue of messages for one socket.
class MessageQueue {
 public:
  // Throws Error(Value), and adds nothing, if the message exceeds the protocol's
  // limits.
  void push(std::uint32_t code, std::int64_t number, const std::vector<Value>& fields);
  bool is_empty() const { return pieces_.empty(); }
  // Sends what the socket takes now. Returns true if nothing is left. Throws
  // Error(Network).
  bool send(int socket);
  // The number of bytes sent since the last call.
  std::size_t take_sent() { return std::exchange(sent_, 0); }

 private:
  void drop_sent(std::size_t num_bytes);

  std::deque<Value> pieces_;     // none is empty
  std::size_t num_skipped_ = 0;  // bytes of the first piece that were sent
  std::size_t sent_ = 0;
};

}  // namespace allhands::store
