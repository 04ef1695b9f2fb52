#include "allhands/engine/matching.hpp"

#include <algorithm>

namespace allhands {
namespace {

bool fits(const Transfer& receive, int source, std::int64_t tag) {
  return (receive.peer == kAnySource || receive.peer == source) && receive.tag == tag;
}

}  // namespace

TransferPtr Matching::match(int source, std::int64_t tag) {
  const auto found = std::find_if(
      posted_.begin(), posted_.end(),
      [&](const TransferPtr& receive) { return fits(*receive, source, tag); });
  if (found == posted_.end()) return nullptr;
  TransferPtr receive = std::move(*found);
  posted_.erase(found);
  return receive;
}

std::optional<Unexpected> Matching::match(const Transfer& receive) {
  const auto found = std::find_if(
      unexpected_.begin(), unexpected_.end(), [&](const Unexpected& unexpected) {
        return fits(receive, unexpected.source, unexpected.message.tag);
      });
  if (found == unexpected_.end()) return std::nullopt;
  std::optional<Unexpected> message = std::move(*found);
  unexpected_.erase(found);
  kept_bytes_[static_cast<std::size_t>(message->source)] -= message->data.size();
  return message;
}

void Matching::keep(Unexpected message) {
  kept_bytes_[static_cast<std::size_t>(message.source)] += message.data.size();
  unexpected_.push_back(std::move(message));
}

bool Matching::withdraw(const Transfer& receive) {
  return std::erase_if(posted_, [&](const TransferPtr& posted) {
           return posted.get() == &receive;
         }) != 0;
}

void Matching::drop_offer(int source, std::uint32_t send_id) {
  std::erase_if(unexpected_, [&](const Unexpected& unexpected) {
    return unexpected.source == source &&
           unexpected.message.kind == MessageKind::Offer &&
           unexpected.message.send_id == send_id;
  });
}

}  // namespace allhands
