// What a group has of the flight memory of its process: counters and the slots of its
// two rings. Where there is no such memory it has private memory of its own: all works
// as well, and nobody else sees it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "allhands/base/flight_memory.hpp"

namespace allhands {

class FlightRow {
 public:
  // What readers are told of the group.
  struct Group {
    std::string_view name;
    std::uint64_t key = 0;  // the same on all its ranks, and no other group's
    std::uint32_t rank = 0, size = 0;
    std::uint64_t num_slots = 0;  // of each ring
  };

  // Private.
  FlightRow() = default;
  // In `memory`, where that is there and has room.
  FlightRow(std::shared_ptr<FlightMemory> memory, const Group& group);
  FlightRow(const FlightRow&) = delete;
  FlightRow& operator=(const FlightRow&) = delete;
  ~FlightRow();

  FlightHead& head(int ring) { return lines_->heads[ring]; }
  // How many threads wait for a message, and for a Work.
  std::atomic<int>& num_in_messages() { return lines_->num_in_messages; }
  std::atomic<int>& num_in_works() { return lines_->num_in_works; }

  // Zeros for the slots of `ring`. Null: there is no memory. Thread-safe, and may be
  // called again before the first is given back.
  struct Slots {
    void* memory = nullptr;
    std::uint64_t at = 0;  // in the file; 0: private
  };
  Slots take_slots(std::size_t bytes);
  void give_back(const Slots& slots, std::size_t bytes);
  // Readers find them there from now on.
  void publish(int ring, const Slots& slots) {
    lines_->slots_at[ring].store(slots.at, std::memory_order_release);
  }

 private:
  const std::shared_ptr<FlightMemory> memory_;  // null: private
  FlightLines own_;
  FlightLines* lines_ = &own_;
};

}  // namespace allhands
