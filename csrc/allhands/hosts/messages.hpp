// Messages between ranks as a part of a collective: any number at once, then a wait for
// all of them. Messages between two ranks match in order, and only within their
// operation.
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
  // Gives up messages that have not ended: from then on nothing reads or writes the
  // arrays.
  ~Messages();

  // Both return at once. The arrays must stay until wait() has returned. Large arrays
  // go piece by piece; sender and receiver cut them the same way.
  void send(const Buffer& buffer, int to);
  void receive(const Buffer& buffer, int from);
  // Receives one piece.
  TransferPtr receive_piece(const Buffer& buffer, int from);
  // Receives a message of at most so many elements. The transfer has the actual number.
  TransferPtr receive_up_to(const Buffer& buffer, int from);
  // Returns when all have ended. Throws Timeout and RankFailed naming ranks, what broke
  // the group, or Interrupted.
  void wait();
  // Does the same for one transfer.
  void wait_for(const TransferPtr& transfer);

  // The number of elements of a piece.
  static std::size_t piece_of(DType dtype) { return kPieceBytes / size_of(dtype); }
  // The most pieces from one rank that are received into memory that is used again and
  // again. A connection holds this many unread, so that no piece must be put aside.
  static constexpr std::size_t kPiecesAhead = 8;

 private:
  static constexpr std::size_t kPieceBytes = std::size_t{256} << 10;

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
