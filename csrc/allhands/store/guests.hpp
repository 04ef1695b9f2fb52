// The guests of all relays that are connected to a server, and the names by which its
// service knows them. Not thread-safe.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "allhands/store/service.hpp"

namespace allhands::store {

class Guests {
 public:
  using ClientId = Service::ClientId;
  struct Guest {
    int relay;            // its socket
    std::int64_t number;  // the relay's, see guest.hpp
  };

  // The name of the guest, a new one if it was not here before.
  ClientId enter(int relay, std::int64_t number) {
    const auto [place, is_new] = by_relay_[relay].try_emplace(number, last_ - 1);
    if (is_new) guests_.emplace(--last_, Guest{relay, number});
    return place->second;
  }
  const Guest& at(ClientId id) const { return guests_.at(id); }
  std::vector<ClientId> of(int relay) const {
    std::vector<ClientId> ids;
    const auto found = by_relay_.find(relay);
    if (found == by_relay_.end()) return ids;
    for (const auto& [number, id] : found->second) ids.push_back(id);
    return ids;
  }
  void leave(ClientId id) {
    const auto found = guests_.find(id);
    const auto relay = by_relay_.find(found->second.relay);
    relay->second.erase(found->second.number);
    if (relay->second.empty()) by_relay_.erase(relay);
    guests_.erase(found);
  }

 private:
  std::unordered_map<ClientId, Guest> guests_;
  std::unordered_map<int, std::unordered_map<std::int64_t, ClientId>> by_relay_;
  ClientId last_ = 0;  // each is one less than the one before
};

}  // namespace allhands::store
