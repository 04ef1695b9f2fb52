// Messages between ranks as a part of a collective: any number at once, then a wait for
// all of them. Between two ranks they match in order, those of an operation only with
// each other.
#pragma once

#include <cstddef>
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

  // These return at once. The arrays stay until wait() has returned. What is large goes
  // piece by piece: whoever receives it cuts it alike.
  void send(const Buffer& buffer, int to);
  void receive(const Buffer& buffer, int from);
  // One piece.
  TransferPtr receive_piece(const Buffer& buffer, int from);
  // Of a message of up to as many elements: those that came are in the transfer's.
  TransferPtr receive_up_to(const Buffer& buffer, int from);
  // Returns when all have ended. Throws Timeout and RankFailed naming ranks, what broke
  // the group, or Interrupted.
  void wait();
  // The same when one has.
  void wait_for(const TransferPtr& transfer);

  // Elements of a piece.
  static std::size_t piece_of(DType dtype) { return kPieceBytes / size_of(dtype); }

 private:
  static constexpr std::size_t kPieceBytes = std::size_t{128} << 10;

  static std::vector<Buffer> pieces_of(const Buffer& buffer);
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
