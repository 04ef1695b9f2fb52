// The bodies of a connection's records that come over its strands. The connection
// announces each of them, in order, so that records stay in order and have the same
// room as others. A body that is announced in time goes straight to where its channel
// expects it. One that comes earlier is kept until then. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "allhands/transport/landings.hpp"
#include "allhands/transport/tcp/channel.hpp"
#include "allhands/transport/tcp/frame.hpp"

namespace allhands {

// The bodies of a connection's records that come over its strands.
class Bodies {
 public:
  // The most bodies that are kept before they are announced. A peer announces each
  // before it sends it, so only a few overtake their announcements.
  static constexpr std::size_t kMostEarly = 1024;

  // The body of this record comes over a strand. If `channel` is null, it goes nowhere.
  // Throws LinkError.
  void announce(const Announcement& announcement, LandingKey key,
                const std::shared_ptr<Channel>& channel);
  // A body begins to come over strand number `strand`. Returns where it goes until
  // end(); null: nowhere. Throws LinkError.
  std::byte* begin(std::uint64_t number, std::size_t bytes, unsigned strand);
  // The body is there.
  void end(std::uint64_t number);
  // From now on no body with `key` begins to go to where it was expected. Returns those
  // that go there just now.
  struct Coming {
    std::uint64_t number;
    unsigned strand;
  };
  std::vector<Coming> forget(LandingKey key, const Channel& channel);
  // Frees what was kept: nothing comes any more.
  void clear();

 private:
  struct Body {
    std::size_t bytes = 0;
    bool is_announced = false;
    bool is_there = false;
    unsigned strand = 0;                // over which it comes now; 0: over none
    std::byte* place = nullptr;         // where it belongs; null: nowhere
    std::unique_ptr<std::byte[]> kept;  // of a body that came early
    LandingKey key = kNoLanding;        // of an expected body
    std::shared_ptr<Channel> channel;
    std::uint64_t record = 0;  // of the channel, to be finished
  };

  void deliver(std::uint64_t number, Body& body);

  std::mutex mutex_;  // guards what follows
  std::unordered_map<std::uint64_t, Body> bodies_;
  std::size_t num_early_ = 0;
  std::uint64_t next_ = 0;  // the number of the next announcement
};

}  // namespace allhands
