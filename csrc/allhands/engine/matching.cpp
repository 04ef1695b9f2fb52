#include "allhands/engine/matching.hpp"

#include <algorithm>

namespace allhands {
namespace {

bool takes_from(const Transfer& receive, int source) {
  return receive.peer == kAnySource || receive.peer == source;
}

bool fits(const Transfer& receive, int source, Tag tag) {
  return takes_from(receive, source) && receive.tag == tag;
}

// The first of `posted` for which `is_it` holds, taken out; or null.
template <class Predicate>
TransferPtr take(std::list<TransferPtr>& posted, Predicate is_it) {
  const auto found = std::find_if(posted.begin(), posted.end(), is_it);
  if (found == posted.end()) return nullptr;
  TransferPtr receive = std::move(*found);
  posted.erase(found);
  return receive;
}

}  // namespace

TransferPtr Matching::match(int source, Tag tag) {
  return take(posted_,
              [&](const TransferPtr& receive) { return fits(*receive, source, tag); });
}

bool Matching::has_receive_for(int source, Tag tag) const {
  return std::any_of(posted_.begin(), posted_.end(), [&](const TransferPtr& receive) {
    return fits(*receive, source, tag);
  });
}

bool Matching::has_message_for(const Transfer& receive) const {
  return std::any_of(
      unexpected_.begin(), unexpected_.end(), [&](const Unexpected& unexpected) {
        return fits(receive, unexpected.source, unexpected.message.tag());
      });
}

TransferPtr Matching::take_waiting_for(int source, Context context) {
  return take(posted_, [&](const TransferPtr& receive) {
    return takes_from(*receive, source) && receive->tag.context == context;
  });
}

std::optional<Unexpected> Matching::match(const Transfer& receive) {
  const auto found = std::find_if(
      unexpected_.begin(), unexpected_.end(), [&](const Unexpected& unexpected) {
        return fits(receive, unexpected.source, unexpected.message.tag());
      });
  if (found == unexpected_.end()) return std::nullopt;
  std::optional<Unexpected> message = std::move(*found);
  unexpected_.erase(found);
  return message;
}

void Matching::withdraw(const Transfer& receive) {
  std::erase_if(posted_,
                [&](const TransferPtr& posted) { return posted.get() == &receive; });
}

void Matching::drop_offer(int source, std::uint32_t send_id) {
  std::erase_if(unexpected_, [&](const Unexpected& unexpected) {
    return unexpected.source == source &&
           unexpected.message.kind == MessageKind::Offer &&
           unexpected.message.send_id == send_id;
  });
}

}  // namespace allhands
