#include "allhands/arena/arena.hpp"

#include <cstring>

#include "allhands/base/error.hpp"
#include "allhands/base/futex.hpp"
#include "allhands/base/random.hpp"

namespace allhands {

namespace {

std::unique_ptr<const std::uint64_t> make_probe() {
  std::uint64_t number;
  std::memcpy(&number, random_bytes(sizeof(number)).data(), sizeof(number));
  return std::make_unique<const std::uint64_t>(number);
}

}  // namespace

void Arena::prepare(SharedMemory& memory, int size, const Tuning& tuning) {
  Layout(size).header(memory.data()).tuning = tuning;
}

Arena::Arena(std::shared_ptr<SharedMemory> memory, Membership membership,
             const LateNotice& late_notice)
    : memory_(std::move(memory)),
      membership_(std::move(membership)),
      late_notice_(late_notice),
      layout_(membership_.size()),
      probe_(make_probe()),
      limits_{Deadline::after(Deadline::Duration::zero())} {
  if (memory_->size() < layout_.total_bytes())
    throw Error(ErrorKind::Backend,
                "group '" + membership_.name + "' needs " +
                    std::to_string(layout_.total_bytes()) +
                    " bytes of shared memory, its segment has " +
                    std::to_string(memory_->size()) +
                    "; do all ranks run the same version of allhands?");
  tuning_ = layout_.header(memory_->data()).tuning;
  if (!tuning_.is_valid())
    throw Error(ErrorKind::Backend,
                "group '" + membership_.name +
                    "': the tuning in its shared memory is none; do all ranks run the "
                    "same version of allhands?");
  chunk_bytes_ = layout_.chunk_bytes(tuning_);
  std::vector<Seat*> seats;
  for (int peer = 0; peer < size(); ++peer) seats.push_back(&post(peer).seat);
  placement_ = std::make_unique<Placement>(std::move(seats),
                                           layout_.header(memory_->data()).moves,
                                           membership_.rank, tuning_.yields_per_look);
}

void Arena::begin(const Descriptor& descriptor, const Limits& limits,
                  const Limits* waiter) {
  limits_ = limits;
  waiter_ = waiter;
  if (is_suspended_) return;
  descriptor_ = descriptor;
  ++sequence_;
  if (has_failed()) throw_failure();
  first_chunk_ = next_chunk_;
  next_chunk_ = first_chunk_ + 1;
  line(rank()).descriptor = descriptor;
  post(rank()).entered.store(sequence_ << 8 | static_cast<std::uint64_t>(descriptor.op),
                             std::memory_order_relaxed);
}

std::byte* Arena::slot(int rank, std::uint64_t i) const {
  return layout_.slot(memory_->data(), rank, first_chunk_ + i);
}

void Arena::set_factor(const Factor& factor) {
  post(rank()).factors[sequence_ & 1] = factor;
}

const Factor& Arena::factor(int rank) const {
  return post(rank).factors[sequence_ & 1];
}

void Arena::enter() {
  wait_all(std::exchange(is_suspended_, false) ? clock_ : publish());
  waiter_ = nullptr;
  if (!can_read_peers_) try_to_read_peers();
  check_match();
}

std::uint32_t Arena::publish() {
  Line& mine = line(rank());
  // Sequentially consistent with the waiter's increment and re-read: either it sees the
  // new clock or we see that it sleeps.
  mine.clock.exchange(++clock_, std::memory_order_seq_cst);
  if (mine.waiters.load(std::memory_order_seq_cst) != 0) futex_wake_all(mine.clock);
  return clock_;
}

void Arena::wait_all(std::uint32_t clock) {
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank()) wait(peer, clock);
}

void Arena::check_match() const {
  std::vector<int> different;
  for (int peer = 0; peer < size(); ++peer)
    if (line(peer).descriptor != descriptor_) different.push_back(peer);
  if (different.empty()) return;
  std::string text = "the ranks of group '" + membership_.name +
                     "' called different things as operation #" +
                     std::to_string(sequence_) + ":";
  for (int peer = 0; peer < size(); ++peer)
    text += (peer == 0 ? " rank " : "; rank ") + std::to_string(peer) +
            (peer == rank() ? " (this process): " : ": ") +
            describe(line(peer).descriptor);
  throw Error(ErrorKind::Mismatch, text, different);
}

}  // namespace allhands
