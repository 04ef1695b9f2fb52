// A large message in slices, which its two ranks copy together: the receiver takes them
// from the first one on, the sender from the last one on, until none is left. So both
// work as long as both have time, and either does all of it if the other does not come.
//
// For one message at a time, in one direction. The receiver opens the slices for a
// message; anything that a late sender still does for an earlier message has no effect.
// Thread rule: one thread at a time per side.
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
  // number, so that nobody changes them on behalf of another message.
  struct Control {
    // two counts: taken by the receiver, by the sender
    alignas(64) std::atomic<std::uint64_t> taken;
    // two counts of the sender: failed, written
    alignas(64) std::atomic<std::uint64_t> ended;
    std::atomic<std::uint32_t> withdrawn;  // see withdraw()
  };

  Slices() = default;  // none: only to be assigned to
  explicit Slices(std::byte* memory) : control_(reinterpret_cast<Control*>(memory)) {}

  // Receiver: message `number`, not 0, has `count` slices, 1 to kMost.
  void open(std::uint32_t number, std::uint32_t count);
  // Receiver: the next slice to copy; none when all are taken. This and the next two
  // throw LinkError if something else has written over the control words.
  std::optional<std::uint32_t> take_first();
  // Receiver: whether all slices are taken, and the sender is done with its own.
  bool is_complete() const;
  // Receiver: the slice that the sender took and could not write.
  std::optional<std::uint32_t> failed() const;
  // Receiver: makes the sender take no more slices.
  void close();
  // Receiver: whether the sender has taken slices that it is not done with.
  bool is_sender_busy() const;
  // Receiver: call after close(). Waits until the sender is done with the slice that it
  // is writing, for a second at most. `is_alive` tells whether the sender is alive. It
  // is asked again and again, since a dying process may lose its memory before it is
  // found dead.
  void wait_for_sender(const std::function<bool()>& is_alive) const;
  bool has_untaken() const;

  // Sender: the next slice of message `number`, which has `count`, to copy; none when
  // all are taken or they are not open for it.
  std::optional<std::uint32_t> take_last(std::uint32_t number, std::uint32_t count);
  // Sender: is done with a slice. A sender that could not write one must take no more.
  void put_back(std::uint32_t number, bool is_written);
  // Sender: counts the messages that it has given up, before their arrays change.
  void withdraw();
  // Receiver: the number of withdrawn messages. If it is the same as before a copy, the
  // copied data is valid.
  std::uint32_t withdrawn() const;

 private:
  std::uint64_t taken() const;

  Control* control_ = nullptr;
  // Used by the receiver only.
  std::uint32_t number_ = 0;
  std::uint32_t count_ = 0;
  std::uint32_t num_taken_ = 0;
};

}  // namespace allhands
