#include "allhands/engine/matching.hpp"

#include <algorithm>

namespace allhands {
namespace {

bool fits(const Transfer& receive, const Unexpected& unexpected) {
  return (receive.peer == kAnySource || receive.peer == unexpected.source) &&
         receive.tag.accepts(unexpected.message.tag());
}

// Whether the receive may get a message with that tag.
bool takes(const TransferPtr& receive, Tag tag) {
  return receive->tag.accepts(tag) && receive->fit != Fit::Look;
}

std::size_t slot_of(int source) { return static_cast<std::size_t>(source + 1); }
static_assert(kAnySource == -1);

// Ids are given in the order of posting, and start again after the last one.
bool is_older(const Transfer& one, const Transfer& other) {
  return static_cast<std::int32_t>(one.id - other.id) < 0;
}

}  // namespace

void Matching::post(TransferPtr receive) {
  const std::size_t slot = slot_of(receive->peer);
  if (slot >= posted_.size()) posted_.resize(slot + 1);
  posted_[slot].push_back(std::move(receive));
  ++num_posted_;
}

Matching::Receives* Matching::receives_from(int source) {
  const std::size_t slot = slot_of(source);
  return slot < posted_.size() ? &posted_[slot] : nullptr;
}

TransferPtr Matching::take(Receives& receives, Receives::iterator at) {
  TransferPtr receive = std::move(*at);
  receives.erase(at);
  --num_posted_;
  return receive;
}

template <class Predicate>
TransferPtr Matching::take_oldest(int source, Predicate is_it) {
  Receives* list = nullptr;
  Receives::iterator oldest;
  for (Receives* const each : {receives_from(kAnySource), receives_from(source)}) {
    if (each == nullptr) continue;
    const auto found = std::ranges::find_if(*each, is_it);
    if (found == each->end()) continue;
    if (list != nullptr && is_older(**oldest, **found)) continue;
    list = each;
    oldest = found;
  }
  return list == nullptr ? nullptr : take(*list, oldest);
}

TransferPtr Matching::match(int source, Tag tag) {
  return take_oldest(source,
                     [&](const TransferPtr& receive) { return takes(receive, tag); });
}

TransferPtr Matching::match_probe(int source, Tag tag) {
  return take_oldest(source, [&](const TransferPtr& receive) {
    return receive->fit == Fit::Look && receive->tag.accepts(tag);
  });
}

bool Matching::has_receive_for(int source, Tag tag) const {
  const auto has = [&](int from) {
    const std::size_t slot = slot_of(from);
    return slot < posted_.size() &&
           std::ranges::any_of(
               posted_[slot],
               [&](const TransferPtr& receive) { return takes(receive, tag); });
  };
  return has(kAnySource) || has(source);
}

std::vector<TransferPtr> Matching::posted() const {
  std::vector<TransferPtr> all;
  all.reserve(num_posted_);
  for (const Receives& receives : posted_)
    all.insert(all.end(), receives.begin(), receives.end());
  return all;
}

const Unexpected* Matching::find(const Transfer& receive) const {
  const auto found = std::ranges::find_if(
      unexpected_,
      [&](const Unexpected& unexpected) { return fits(receive, unexpected); });
  return found == unexpected_.end() ? nullptr : &*found;
}

TransferPtr Matching::take_waiting_for(int source, Context context) {
  return take_oldest(source, [&](const TransferPtr& receive) {
    return receive->tag.context == context;
  });
}

std::optional<Unexpected> Matching::match(const Transfer& receive) {
  const auto found = std::ranges::find_if(
      unexpected_,
      [&](const Unexpected& unexpected) { return fits(receive, unexpected); });
  if (found == unexpected_.end()) return std::nullopt;
  std::optional<Unexpected> message = std::move(*found);
  unexpected_.erase(found);
  return message;
}

void Matching::withdraw(const Transfer& receive) {
  Receives* const receives = receives_from(receive.peer);
  if (receives == nullptr) return;
  const auto found = std::ranges::find(*receives, &receive, &TransferPtr::get);
  if (found != receives->end()) take(*receives, found);
}

void Matching::drop_offer(int source, std::uint32_t send_id) {
  std::erase_if(unexpected_, [&](const Unexpected& unexpected) {
    return unexpected.source == source &&
           unexpected.message.kind == MessageKind::Offer &&
           unexpected.message.send_id == send_id;
  });
}

}  // namespace allhands
