// The two sides of a large message that goes straight from the sender's array to the
// receiver's: both ranks copy slices of it, each by a system call that reads or writes
// the other process's memory. Not thread-safe: the ProgressEngine's lock guards them.
//
// A sender that gives up just says so: what the receiver has read then does not count.
// A receiver that gives up waits until the sender is done with the slice that it is
// writing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "allhands/base/tuning.hpp"
#include "allhands/engine/transfer.hpp"
#include "allhands/transport/shm/slices.hpp"

namespace allhands {

// What its receive gets.
class Inbound {
 public:
  enum class State { Going, Complete, Refused };

  // `pid`: of the sender.
  Inbound(Slices slices, int pid, const Tuning& tuning)
      : slices_(slices), pid_(pid), tuning_(tuning) {}

  // Whether the kernel has not refused it yet, and the array can be written in place.
  bool can_take(const Buffer& buffer) const;
  void begin(TransferPtr receive, std::uint32_t send_id, std::uint64_t address);
  // The receive that is under way, or null.
  const TransferPtr& receive() const { return receive_; }
  std::uint32_t send_id() const { return send_id_; }
  bool has_work() const { return receive_ && slices_.has_untaken(); }
  // Copies a slice. Complete: all is there, or was given up by its sender: see
  // withdrawn(). Refused: the memory cannot be read; nothing will be.
  State copy();
  // How many messages the sender has given up, as of the last copy() at the earliest.
  std::uint32_t withdrawn() const { return slices_.withdrawn(); }
  // Nothing is copied any more but the slice that the sender is writing.
  void close() { slices_.close(); }
  bool is_sender_busy() const { return slices_.is_sender_busy(); }
  // See Slices.
  void wait_for_sender(const std::function<bool()>& is_alive) const {
    slices_.wait_for_sender(is_alive);
  }
  // The receive, which is not under way any more.
  TransferPtr end() { return std::exchange(receive_, nullptr); }

 private:
  bool read(std::uint32_t i);

  Slices slices_;
  int pid_;
  const Tuning tuning_;
  bool is_refused_ = false;
  TransferPtr receive_;
  std::uint32_t send_id_ = 0;
  std::uint64_t address_ = 0;  // of the sender's array
};

// What its send gives.
class Outbound {
 public:
  // `pid`: of the receiver.
  Outbound(Slices slices, int pid, const Tuning& tuning)
      : slices_(slices), pid_(pid), tuning_(tuning) {}

  // The address to offer, or 0: the message is to go through the ring.
  std::uint64_t address_of(const Buffer& buffer) const;
  // The receiver has begun; its array is at `address`.
  void join(TransferPtr send, std::uint64_t address);
  // The send that the receiver is copying, or null.
  const TransferPtr& send() const { return send_; }
  bool has_work() const { return has_work_; }
  // Copies a slice. False: none is left.
  bool copy();
  // It is over, or comes to nothing.
  TransferPtr end();
  // Before a send is given up; the receiver will be told by a message too.
  void withdraw() { slices_.withdraw(); }

 private:
  Slices slices_;
  int pid_;
  const Tuning tuning_;
  bool is_refused_ = false;
  bool has_work_ = false;
  TransferPtr send_;
  std::uint64_t address_ = 0;  // of the receiver's array
};

}  // namespace allhands
