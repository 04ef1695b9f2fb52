// Single copies between two processes of a host: both ranks copy slices, each by a
// system call that reads or writes the other process's memory; the receiver from the
// beginning, the sender from the end.
//
// A sender that gives up only says so, and then what the receiver has read does not
// count. A receiver that gives up waits until the sender is done with the slice that it
// is writing. Keys are addresses.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allhands/host/process.hpp"
#include "allhands/host/tuning.hpp"
#include "allhands/transport/shm/slices.hpp"
#include "allhands/transport/single_copy.hpp"

namespace allhands {

// Sends large messages by single copies; takes their slices from the end.
class ShmSender final : public SingleCopySender {
 public:
  ShmSender(const ProcessIdentity& receiver, const Tuning& tuning)
      : pid_(receiver.pid), tuning_(tuning) {}

  // Call before its first message is offered.
  void open(Slices slices) { slices_ = slices; }

  ArrayKey key_of(const Buffer& buffer) const override;
  void join(std::uint32_t message, const Buffer& from, ArrayKey receiver) override;
  bool has_part() const override { return has_part_; }
  bool copy_part() override;
  void end() override { has_part_ = false; }
  void withdraw() override { slices_.withdraw(); }

 private:
  Slices slices_;
  const int pid_;
  const Tuning& tuning_;
  bool is_refused_ = false;  // by the kernel, so it will be again
  bool has_part_ = false;
  std::uint32_t message_ = 0;
  std::byte* from_ = nullptr;
  std::size_t bytes_ = 0;
  std::uint64_t to_ = 0;  // in the receiver's memory
};

// Receives large messages by single copies; takes their slices from the beginning.
class ShmReceiver final : public SingleCopyReceiver {
 public:
  ShmReceiver(const ProcessIdentity& sender, const Tuning& tuning)
      : sender_(sender), tuning_(tuning) {}

  // Call before its first message has come.
  void open(Slices slices) { slices_ = slices; }

  bool can_receive(const Buffer& buffer) const override;
  ArrayKey begin(std::uint32_t message, const Buffer& to, ArrayKey sender) override;
  bool has_part() const override { return is_open_ && slices_.has_untaken(); }
  State copy_part() override;
  std::uint32_t num_withdrawn() const override { return slices_.withdrawn(); }
  void end() override;

 private:
  bool read(std::uint32_t i);

  Slices slices_;
  const ProcessIdentity& sender_;
  const Tuning& tuning_;
  bool is_refused_ = false;  // by the kernel, so it will be again
  bool is_open_ = false;
  std::byte* to_ = nullptr;
  std::size_t bytes_ = 0;
  std::uint64_t from_ = 0;  // in the sender's memory
};

}  // namespace allhands
