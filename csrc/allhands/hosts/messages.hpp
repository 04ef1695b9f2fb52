// Messages between ranks as a part of a collective: any number at once, then a wait for
// all of them. Between two ranks they match in order, those of an operation only with
// each other.
#pragma once

#include <vector>

#include "allhands/base/buffer.hpp"
#include "allhands/engine/transfer.hpp"
#include "allhands/hosts/crossing.hpp"

namespace allhands {

class Messages {
 public:
  explicit Messages(const Crossing& crossing)
      : crossing_(crossing), limits_(crossing.wire_limits()) {}
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;
  // Gives up what has not ended: nothing reads or writes the arrays any more.
  ~Messages();

  // These return at once. The arrays stay until wait() has returned.
  void send(const Buffer& buffer, int to);
  void receive(const Buffer& buffer, int from);
  // Of a message of up to as many elements: those that came are in the transfer's.
  TransferPtr receive_up_to(const Buffer& buffer, int from);
  // Returns when all have ended. Throws Timeout and RankFailed naming ranks, what broke
  // the group, or Interrupted.
  void wait();

 private:
  [[noreturn]] void rethrow(const Error& error) const;
  [[noreturn]] void throw_timeout() const;
  std::vector<int> missing() const;

  const Crossing& crossing_;
  const Limits limits_;
  std::vector<TransferPtr> transfers_;
};

// Bytes as an array.
inline Buffer bytes_at(void* data, std::size_t bytes) {
  return {data, DType::UInt8, bytes, {}, 0};
}

}  // namespace allhands
