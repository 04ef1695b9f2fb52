#include "allhands/base/flight_row.hpp"

#include <sys/mman.h>

#include <cstring>
#include <utility>

namespace allhands {

FlightRow::FlightRow(std::shared_ptr<FlightMemory> memory, const Group& group)
    : memory_(std::move(memory)) {
  FlightLines* const lines = memory_ ? memory_->take_lines() : nullptr;
  if (lines == nullptr) return;
  lines_ = lines;
  lines->key = group.key;
  lines->rank = group.rank;
  lines->size = group.size;
  lines->num_slots = group.num_slots;
  for (auto& at : lines->slots_at) at.store(0, std::memory_order_relaxed);
  for (FlightHead& head : lines->heads) {
    head.last.store(0, std::memory_order_relaxed);
    head.num_bytes.store(0, std::memory_order_relaxed);
  }
  lines->num_in_messages.store(0, std::memory_order_relaxed);
  lines->num_in_works.store(0, std::memory_order_relaxed);
  std::memset(lines->name, 0, FlightLines::kNameBytes);
  group.name.copy(lines->name, FlightLines::kNameBytes);
  lines->generation.fetch_add(1, std::memory_order_release);
}

FlightRow::~FlightRow() {
  if (lines_ == &own_ || !memory_->is_owner()) return;
  lines_->generation.fetch_add(1, std::memory_order_release);
  memory_->give_back(lines_);
}

FlightRow::Slots FlightRow::take_slots(std::size_t bytes) {
  Slots slots;
  if (lines_ != &own_) slots.memory = memory_->take(bytes, &slots.at);
  if (slots.memory != nullptr) return slots;
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return {memory == MAP_FAILED ? nullptr : memory, 0};
}

void FlightRow::give_back(const Slots& slots, std::size_t bytes) {
  if (slots.at != 0)
    memory_->give_back(slots.memory, bytes, slots.at);
  else
    munmap(slots.memory, bytes);
}

}  // namespace allhands
