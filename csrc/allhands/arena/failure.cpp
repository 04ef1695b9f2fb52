// The failure of a group: written once, by whoever notices first, read by everybody, so
// that all ranks raise the same kind with the same ranks.
#include <algorithm>
#include <cstring>
#include <string>

#include "allhands/arena/arena.hpp"
#include "allhands/base/futex.hpp"

namespace allhands {

bool Arena::has_failed() const {
  return failure().state.load(std::memory_order_acquire) == Failure::kComplete;
}

void Arena::fail(const Error& error) {
  Failure& record = failure();
  std::uint32_t expected = Failure::kNone;
  if (!record.state.compare_exchange_strong(expected, Failure::kWriting)) return;
  // A signal to this rank is none to the others: they raise no KeyboardInterrupt.
  const bool is_interrupt = error.kind() == ErrorKind::Interrupted;
  record.kind = is_interrupt ? ErrorKind::Backend : error.kind();
  record.reporter = rank();
  record.num_ranks =
      static_cast<std::uint32_t>(std::min(error.ranks().size(), Failure::kMaxRanks));
  std::copy_n(error.ranks().begin(), record.num_ranks, record.ranks);
  const std::size_t length = std::min(std::strlen(error.what()), Failure::kMaxText - 1);
  std::memcpy(record.text, error.what(), length);
  record.text[length] = 0;
  record.state.store(Failure::kComplete, std::memory_order_release);
  wake_everybody();
}

void Arena::wake_everybody() const {
  for (int peer = 0; peer < size(); ++peer)
    for (Line& line : post(peer).lines) futex_wake_all(line.clock);
}

// Whatever the record holds, also where a rank has written over it.
std::optional<Error> Arena::told_failure() const {
  if (!has_failed()) return std::nullopt;
  const Failure& record = failure();
  const ErrorKind told = record.kind;
  const bool is_kind = told == ErrorKind::RankFailed || told == ErrorKind::Mismatch ||
                       told == ErrorKind::Timeout;
  std::vector<int> ranks(
      record.ranks,
      record.ranks + std::min<std::size_t>(record.num_ranks, Failure::kMaxRanks));
  std::erase_if(ranks, [this](int rank) { return rank < 0 || rank >= size(); });
  const std::string text(record.text, strnlen(record.text, Failure::kMaxText));
  return Error(is_kind ? told : ErrorKind::Backend,
               "rank " + std::to_string(record.reporter) + " reports: " + text,
               std::move(ranks));
}

void Arena::throw_failure() const {
  const Failure& record = failure();
  const Error told = *told_failure();
  const std::string call = describe_call() + ": ";
  std::string text =
      record.reporter == rank()
          ? "the group is broken since: " +
                std::string(record.text, strnlen(record.text, Failure::kMaxText))
          : told.what();
  // The reporter was in the same call, as it mostly is: said once.
  if (const std::size_t again = text.find(call); again != std::string::npos)
    text.erase(again, call.size());
  throw Error(told.kind(), call + text, told.ranks());
}

void Arena::fail_and_throw(ErrorKind kind, const std::string& problem,
                           std::vector<int> ranks) {
  const std::string call = describe_call() + ": ";
  fail(Error(kind, call + problem, ranks));
  // Somebody else's may have been first; then everybody raises that one.
  if (has_failed() && failure().reporter != rank()) throw_failure();
  const std::string self = "rank " + std::to_string(rank()) + " (this process): ";
  throw Error(kind, call + self + problem, std::move(ranks));
}

Error Arena::nonsense_of(int rank) const {
  return Error(ErrorKind::Backend,
               describe_call() + ": what " + membership_.describe(rank) +
                   " says in shared memory cannot be; something has written over it");
}

void Arena::leave() {
  post(rank()).has_left.store(1, std::memory_order_release);
  for (Line& line : post(rank()).lines) futex_wake_all(line.clock);
}

}  // namespace allhands
