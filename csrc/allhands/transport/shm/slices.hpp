// A large message in slices, which its two ranks copy together: the receiver takes them
// from the first one on, the sender from the last one on, until none is left. So both
// work as long as both have time, and either does all of it if the other does not come.
//
// For one message at a time, in one direction. The receiver opens them for a message;
// what a late sender still does for an earlier one has no effect. Thread rule: one
// thread at a time per side.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

namespace allhands {

class Slices {
 public:
  static constexpr std::uint32_t kMost = 0xffff;

  // The part that both sides see, zero at first. The words begin with the message's
  // number, so that nobody changes them for another one.
  struct Control {
    alignas(64) std::atomic<std::uint64_t> taken;  // by the receiver; by the sender
    alignas(64) std::atomic<std::uint64_t> ended;  // by the sender: failed; written
    std::atomic<std::uint32_t> withdrawn;          // see withdraw()
  };

  Slices() = default;  // none: only to be assigned to
  explicit Slices(std::byte* memory) : control_(reinterpret_cast<Control*>(memory)) {}

  // Receiver: message `number`, not 0, has `count` slices, 1 to kMost.
  void open(std::uint32_t number, std::uint32_t count);
  // Receiver: the next slice to copy; none when all are taken. Throws LinkError, as do
  // the next two, where something else has written over the control words.
  std::optional<std::uint32_t> take_first();
  // Receiver: all are taken, and the sender is done with its own.
  bool is_complete() const;
  // Receiver: the slice that the sender took and could not write.
  std::optional<std::uint32_t> failed() const;
  // Receiver: the sender takes no more of them.
  void close();
  // Receiver: the sender has taken slices that it is not done with.
  bool is_sender_busy() const;
  // Receiver: once it has closed them, until the sender is done with the one in its
  // hand; for a second at most. `is_alive`: whether the sender is; asked again and
  // again, as one that dies may be found without memory before it is found dead.
  void wait_for_sender(const std::function<bool()>& is_alive) const;
  bool has_untaken() const;

  // Sender: the next slice of message `number`, which has `count`, to copy; none when
  // all are taken or they are not open for it.
  std::optional<std::uint32_t> take_last(std::uint32_t number, std::uint32_t count);
  // Sender: done with it. Who could not write one must take no more.
  void put_back(std::uint32_t number, bool is_written);
  // Sender: counts the messages that it has given up, before their arrays change.
  void withdraw();
  // Receiver: the same number as before it copied means that what it copied is good.
  std::uint32_t withdrawn() const;

 private:
  std::uint64_t taken() const;

  Control* control_ = nullptr;
  // The receiver's.
  std::uint32_t number_ = 0;
  std::uint32_t count_ = 0;
  std::uint32_t num_taken_ = 0;
};

}  // namespace allhands
