#include "allhands/transport/routed_transport.hpp"

namespace allhands {

RoutedTransport::RoutedTransport(std::unique_ptr<Transport> local,
                                 const std::vector<int>& ranks, int size,
                                 std::unique_ptr<Transport> remote)
    : local_(std::move(local)),
      remote_(std::move(remote)),
      ranks_(ranks),
      local_ranks_(static_cast<std::size_t>(size), -1) {
  for (std::size_t i = 0; i < ranks.size(); ++i)
    local_ranks_[static_cast<std::size_t>(ranks[i])] = static_cast<int>(i);
}

std::span<const int> RoutedTransport::ready() {
  ready_.clear();
  for (const int local : local_->ready())
    ready_.push_back(ranks_[static_cast<std::size_t>(local)]);
  for (const int peer : remote_->ready()) ready_.push_back(peer);
  return ready_;
}

void RoutedTransport::leave(Presence how, const Error& why) {
  local_->leave(how, why);
  remote_->leave(how, why);
}

}  // namespace allhands
