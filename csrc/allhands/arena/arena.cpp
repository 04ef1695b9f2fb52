#include "allhands/arena/arena.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "allhands/arena/mismatch.hpp"
#include "allhands/base/error.hpp"
#include "allhands/base/random.hpp"

namespace allhands {

namespace {

std::unique_ptr<const std::uint64_t> make_probe() {
  std::uint64_t number;
  std::memcpy(&number, random_bytes(sizeof(number)).data(), sizeof(number));
  return std::make_unique<const std::uint64_t>(number);
}

std::vector<int> all_ranks(const Membership& group) {
  std::vector<int> ranks(static_cast<std::size_t>(group.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// `rank`'s place in `ranks`.
int place_of(int rank, const std::vector<int>& ranks) {
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

}  // namespace

void Arena::prepare(SharedMemory& memory, int size, const Tuning& tuning) {
  Header& header = Layout(size).header(memory.data());
  header.tuning = tuning;
  if (tuning.are_many(size)) header.known_place = KnownPlace::look_up();
}

Arena::Arena(std::shared_ptr<SharedMemory> memory, Membership group,
             const LateNotice& late_notice)
    : Arena(std::move(memory), group, all_ranks(group), late_notice) {}

Arena::Arena(std::shared_ptr<SharedMemory> memory, Membership group,
             std::vector<int> ranks, const LateNotice& late_notice,
             HasDeparted has_departed, HasBegun has_begun)
    : memory_(std::move(memory)),
      group_(std::move(group)),
      ranks_(std::move(ranks)),
      rank_(place_of(group_.rank, ranks_)),
      late_notice_(late_notice),
      has_departed_(std::move(has_departed)),
      has_begun_(std::move(has_begun)),
      layout_(static_cast<int>(ranks_.size())),
      probe_(make_probe()),
      limits_{Deadline::after(Deadline::Duration::zero())} {
  if (memory_->size() < layout_.total_bytes())
    throw Error(ErrorKind::Backend,
                "group '" + group_.name + "' needs " +
                    std::to_string(layout_.total_bytes()) +
                    " bytes of shared memory, its segment has " +
                    std::to_string(memory_->size()) +
                    "; do all ranks run the same version of allhands?");
  tuning_ = layout_.header(memory_->data()).tuning;
  if (!tuning_.is_valid())
    throw Error(ErrorKind::Backend,
                "group '" + group_.name +
                    "': the tuning in its shared memory is none; do all ranks run the "
                    "same version of allhands?");
  chunk_bytes_ = layout_.chunk_bytes(tuning_);
  std::vector<Seat*> seats;
  for (int peer = 0; peer < size(); ++peer) seats.push_back(&control(peer).seat);
  placement_ = std::make_unique<Placement>(std::move(seats),
                                           layout_.header(memory_->data()).moves, rank_,
                                           tuning_.yields_per_look);
  let_peers_read();
  tell_place();
  arrange(false);
}

bool Arena::begin(std::uint64_t sequence, const Descriptor& descriptor,
                  const Limits& limits, bool may_suspend) {
  limits_ = limits;
  may_suspend_ = may_suspend;
  if (is_suspended_) return false;
  sequence_ = sequence;
  called_ = descriptor;
  begin_part(descriptor, limits);
  control(rank()).entered.store(
      sequence << 8 | static_cast<std::uint64_t>(descriptor.op),
      std::memory_order_relaxed);
  return true;
}

void Arena::begin_part(const Descriptor& descriptor, const Limits& limits) {
  limits_ = limits;
  descriptor_ = descriptor;
  parity_ ^= 1;
  if (has_failed()) throw_failure();
  first_chunk_ = next_chunk_;
  next_chunk_ = first_chunk_ + 1;
  line(rank()).descriptor = descriptor;
}

std::byte* Arena::slot(int rank, std::uint64_t i) const {
  return layout_.slot(memory_->data(), rank, first_chunk_ + i);
}

void Arena::set_factor(const Factor& factor) {
  control(rank()).factors[parity_] = factor;
}

const Factor& Arena::factor(int rank) const { return control(rank).factors[parity_]; }

void Arena::enter() { enter_with(nullptr); }

void Arena::enter_with(const Make* make) {
  if (!std::exchange(is_suspended_, false)) publish();
  entered_at_ = clock_;
  const bool may_differ = gather_and_release(true, make);
  may_suspend_ = false;
  if (!can_read_peers_) {
    try_to_read_peers();
    arrange(true);
  }
  if (may_differ) check_match();
  if (tree_ && may_differ)  // or there is a result that nobody has made
    throw Error(ErrorKind::Backend,
                describe_call() +
                    ": some rank says that ranks called different things, "
                    "which they did not; something has written over it "
                    "in shared memory");
}

void Arena::wait_all(std::uint32_t clock) {
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank()) wait(peer, clock);
}

void Arena::check_match() const {
  std::vector<Descriptor> called;
  bool are_alike = true;
  for (int peer = 0; peer < size(); ++peer)
    are_alike = are_alike && line(peer).descriptor == descriptor_;
  if (are_alike) return;
  for (int peer = 0; peer < size(); ++peer) called.push_back(line(peer).descriptor);
  throw mismatch_error(group_, sequence_, ranks_, called);
}

}  // namespace allhands
