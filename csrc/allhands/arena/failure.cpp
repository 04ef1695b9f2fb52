// How local ranks tell each other that their group is broken: the first rank that
// notices writes the failure once, every rank reads it, and all raise the same kind of
// error with the same ranks.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "allhands/arena/arena.hpp"
#include "allhands/base/futex.hpp"

namespace allhands {
namespace {

// The longest that writing the failure takes, even on a rank that is waiting for a CPU.
constexpr std::chrono::seconds kTelling{1};

template <std::size_t size>
void write(char (&place)[size], const char* text) {
  const std::size_t length = std::min(std::strlen(text), size - 1);
  std::memcpy(place, text, length);
  place[length] = 0;
}

template <std::size_t size>
std::string read(const char (&place)[size]) {
  return {place, strnlen(place, size)};
}

}  // namespace

bool Arena::has_failed() const {
  return failure().state.load(std::memory_order_acquire) == SharedFailure::kComplete;
}

void Arena::fail(const Error& error) {
  if (is_forked()) return;  // the parent goes on
  SharedFailure& record = failure();
  std::uint32_t expected = SharedFailure::kNone;
  if (!record.state.compare_exchange_strong(expected, SharedFailure::kWriting))
    return wait_until_told();
  // A signal to this rank is not one to the others: they raise no KeyboardInterrupt.
  const bool is_interrupt = error.kind() == ErrorKind::Interrupted;
  record.kind = is_interrupt ? ErrorKind::Backend : error.kind();
  record.reporter = group_.rank;
  for (const int rank : error.ranks())
    if (const auto bit = static_cast<std::size_t>(rank); bit < SharedFailure::kMaxRanks)
      record.ranks[bit / 64] |= std::uint64_t{1} << bit % 64;
  write(record.text, error.what());
  if (const RemoteException* const cause = error.cause()) {
    record.cause_rank = cause->rank;
    write(record.cause, cause->text.c_str());
  }
  record.state.store(SharedFailure::kComplete, std::memory_order_release);
  wake_everybody();
}

// Another rank is reporting the failure right now, unless it died while doing so. Until
// the report is there, this rank must not leave: peers that look meanwhile would count
// it as part of the failure.
void Arena::wait_until_told() const {
  const Deadline deadline = Deadline::after(kTelling);
  while (!has_failed() && !deadline.is_expired())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void Arena::wake_everybody() const {
  for (int peer = 0; peer < size(); ++peer) wake_waiters_for(peer);
}

void Arena::wake_waiters_for(int rank) const {
  RankControl& theirs = control(rank);
  for (Line& line : theirs.lines) futex_wake_all(line.clock);
  if (!tuning_.are_many(size())) return;
  futex_wake_all(theirs.gathered.clock);
  futex_wake_all(theirs.released.clock);
}

// Returns an error whatever the record holds, even if a rank has overwritten it.
std::optional<Error> Arena::told_failure() const {
  if (!has_failed()) return std::nullopt;
  const SharedFailure& record = failure();
  const ErrorKind told = record.kind;
  const bool is_kind = told == ErrorKind::RankFailed || told == ErrorKind::Mismatch ||
                       told == ErrorKind::Timeout;
  std::vector<int> ranks;
  const auto size = static_cast<std::size_t>(group_.size());
  for (std::size_t bit = 0; bit < std::min(size, SharedFailure::kMaxRanks); ++bit)
    if ((record.ranks[bit / 64] >> bit % 64 & 1) != 0)
      ranks.push_back(static_cast<int>(bit));
  Error error(is_kind ? told : ErrorKind::Backend,
              reported_by("rank " + std::to_string(record.reporter), read(record.text)),
              std::move(ranks));
  RemoteException cause{record.cause_rank, read(record.cause)};
  if (!cause.text.empty() && cause.rank >= 0 && cause.rank < group_.size())
    error.set_cause(std::move(cause));
  return error;
}

void Arena::throw_failure() const {
  const SharedFailure& record = failure();
  const Error told = *told_failure();
  const std::string call = describe_call() + ": ";
  std::string text = record.reporter == group_.rank
                         ? "the group is broken since: " + read(record.text)
                         : told.what();
  // The reporter was usually in the same call: then name the call only once.
  if (const std::size_t again = text.find(call); again != std::string::npos)
    text.erase(again, call.size());
  throw told.retold(call + text);
}

void Arena::fail_and_throw(ErrorKind kind, const std::string& problem,
                           const std::vector<int>& local) {
  const std::string call = describe_call() + ": ";
  const std::vector<int> ranks = group_ranks(local);
  fail(Error(kind, call + problem, ranks));
  // If another rank reported first, all raise what that rank reported.
  if (has_failed() && failure().reporter != group_.rank) throw_failure();
  throw Error(kind, call + describe_self() + ": " + problem, ranks);
}

Error Arena::nonsense_of(int rank) const {
  return Error(ErrorKind::Backend,
               describe_call() + ": what " + describe(rank) +
                   " says in shared memory cannot be; something has written over it");
}

void Arena::leave() {
  control(rank()).has_left.store(1, std::memory_order_release);
  wake_waiters_for(rank());
}

}  // namespace allhands
