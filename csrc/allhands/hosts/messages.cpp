#include "allhands/hosts/messages.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include "allhands/base/rank_text.hpp"
#include "allhands/base/seconds.hpp"

namespace allhands {

Messages::~Messages() {
  std::erase_if(transfers_, [](const auto& each) { return each->work.is_completed(); });
  if (transfers_.empty()) return;
  crossing_.engine.give_up(
      transfers_, Error(ErrorKind::Backend, "the collective that it is of failed"));
}

std::vector<Buffer> Messages::pieces_of(const Buffer& buffer) {
  const std::size_t most = piece_of(buffer.dtype);
  std::vector<Buffer> pieces;
  std::size_t at = 0;
  do {
    pieces.push_back(buffer.slice(at, std::min(most, buffer.count - at)));
    at += pieces.back().count;
  } while (at < buffer.count);
  return pieces;
}

void Messages::send(const Buffer& buffer, int to) {
  try {
    const std::vector<TransferPtr> sends = crossing_.engine.post_sends(
        pieces_of(buffer), to, crossing_.tag(), limits_.deadline);
    transfers_.insert(transfers_.end(), sends.begin(), sends.end());
  } catch (const Error& error) {
    rethrow(error);
  }
}

void Messages::receive(const Buffer& buffer, int from) {
  for (const Buffer& piece : pieces_of(buffer)) receive_piece(piece, from);
}

TransferPtr Messages::receive_piece(const Buffer& buffer, int from) {
  try {
    transfers_.push_back(
        crossing_.engine.post_recv(buffer, from, crossing_.tag(), limits_.deadline));
    return transfers_.back();
  } catch (const Error& error) {
    rethrow(error);
  }
}

TransferPtr Messages::receive_up_to(const Buffer& buffer, int from) {
  try {
    transfers_.push_back(crossing_.engine.post_recv(
        buffer, from, crossing_.tag(), limits_.deadline, nullptr, Fit::UpTo));
    return transfers_.back();
  } catch (const Error& error) {
    rethrow(error);
  }
}

// The receives first: meanwhile, peers confirm what was sent, and it needs no copy.
void Messages::wait() {
  for (const bool is_send : {false, true})
    for (const TransferPtr& transfer : transfers_)
      if (transfer->is_send == is_send) wait_for(transfer);
  transfers_.clear();
}

void Messages::wait_for(const TransferPtr& transfer) {
  try {
    crossing_.engine.wait(transfer, limits_, ProgressEngine::AtEnd::Leave);
  } catch (const Error& error) {
    rethrow(error);
  }
}

// Throws a message's error as an error of the collective.
void Messages::rethrow(const Error& error) const {
  if (error.kind() == ErrorKind::Interrupted) throw error;
  // If another rank has told an error, that is the cause.
  if (const std::optional<Error> told = crossing_.engine.abortion())
    throw told->retold(crossing_.subject() + told->what());
  if (error.kind() == ErrorKind::Timeout) throw_timeout();
  std::string text = error.what();
  // The text names the call instead of the message.
  const std::string group = " on group " + crossing_.group.quoted() + ": ";
  if (const std::size_t at = text.find(group); at != text.npos)
    text.erase(0, at + group.size());
  // Ranks that agree on an operation agree on its messages.
  const bool is_mismatch = error.kind() == ErrorKind::Mismatch;
  throw error.retold(is_mismatch ? ErrorKind::Backend : error.kind(),
                     crossing_.subject() + text);
}

void Messages::throw_timeout() const {
  const std::vector<int> absent = missing();
  throw Error(ErrorKind::Timeout,
              crossing_.subject() + "timed out: waited " +
                  seconds(limits_.deadline.elapsed()) + " (limit " +
                  seconds(limits_.deadline.limit()) + "); missing [" +
                  counted_ranges(absent, crossing_.group.size()) + "]",
              absent);
}

// The peers of messages that have not ended.
std::vector<int> Messages::missing() const {
  std::vector<int> ranks;
  for (const TransferPtr& transfer : transfers_)
    if (transfer->work.outcome() != nullptr || !transfer->work.is_completed())
      ranks.push_back(transfer->peer);
  std::ranges::sort(ranks);
  const auto rest = std::ranges::unique(ranks);
  ranks.erase(rest.begin(), rest.end());
  return ranks;
}

}  // namespace allhands
