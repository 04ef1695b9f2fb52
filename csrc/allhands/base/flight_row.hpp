// The part of a process's flight memory that one group has: counters, and the slots of
// its two rings. If there is no flight memory, the row uses private memory: all works
// as well, but nobody else sees it.
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
    // The same on all its ranks, and different from other groups'.
    std::uint64_t key = 0;
    std::uint32_t rank = 0, size = 0;
    std::uint64_t num_slots = 0;  // of each ring
  };

  // Uses private memory.
  FlightRow() = default;
  // Uses `memory` if it is not null and has room.
  FlightRow(std::shared_ptr<FlightMemory> memory, const Group& group);
  FlightRow(const FlightRow&) = delete;
  FlightRow& operator=(const FlightRow&) = delete;
  ~FlightRow();

  FlightHead& head(int ring) { return lines_->heads[ring]; }
  // The numbers of threads that wait for a message, and for a Work.
  std::atomic<int>& num_in_messages() { return lines_->num_in_messages; }
  std::atomic<int>& num_in_works() { return lines_->num_in_works; }

  // Memory of zeros for the slots of `ring`. Null: there is none. Thread-safe, and may
  // be called again before the first memory is given back.
  struct Slots {
    void* memory = nullptr;
    std::uint64_t at = 0;  // in the file; 0: private
  };
  Slots take_slots(std::size_t bytes);
  void give_back(const Slots& slots, std::size_t bytes);
  // From now on readers find the slots there.
  void publish(int ring, const Slots& slots) {
    lines_->slots_at[ring].store(slots.at, std::memory_order_release);
  }

 private:
  const std::shared_ptr<FlightMemory> memory_;  // null: private
  FlightLines own_;
  FlightLines* lines_ = &own_;
};

}  // namespace allhands
