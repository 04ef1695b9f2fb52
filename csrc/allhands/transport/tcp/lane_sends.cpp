#include "allhands/transport/tcp/lane_sends.hpp"

#include "allhands/kernels/copy_bytes.hpp"

namespace allhands {

void LaneSends::add(std::uint64_t number, UcxRequestPtr request, Body body,
                    std::shared_ptr<Channel> channel, std::uint64_t end) {
  entries_[number] = {std::move(request), body, nullptr, std::move(channel), end};
}

bool LaneSends::is_read(std::uint64_t number) {
  const auto found = entries_.find(number);
  if (found == entries_.end()) return true;
  const Entry& entry = found->second;
  if (!entry.is_popped()) return false;
  if (entry.request != nullptr && !entry.request->is_over()) return false;
  entries_.erase(found);
  return true;
}

UcxRequestPtr LaneSends::copy(std::uint64_t number) {
  const auto found = entries_.find(number);
  if (found == entries_.end()) return nullptr;
  Entry& entry = found->second;
  entry.copied = std::make_unique_for_overwrite<std::byte[]>(entry.body.size());
  copy_bytes(entry.copied.get(), entry.body.data(), entry.body.size());
  entry.body = {entry.copied.get(), entry.body.size()};
  return entry.request;
}

void LaneSends::drop(const Channel& channel) {
  std::erase_if(entries_, [&](const auto& each) {
    return each.second.channel.get() == &channel;
  });
}

std::vector<LaneSends::Left> LaneSends::take_all() {
  std::vector<Left> left;
  for (auto& [number, entry] : entries_)
    if (!entry.is_popped())
      left.push_back({number, entry.body, std::move(entry.copied)});
  entries_.clear();
  return left;
}

}  // namespace allhands
