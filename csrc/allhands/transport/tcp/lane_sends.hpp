// The bodies that a connection sends by its lane. Each is kept until its receiver has
// popped it: if UCX fails before, it goes over the connection's socket instead.
// Not thread-safe: the write lock of the connection guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "allhands/transport/tcp/channel.hpp"
#include "allhands/transport/ucx/worker.hpp"

namespace allhands {

// The bodies that a connection sends by its lane.
class LaneSends {
 public:
  using Body = std::span<const std::byte>;

  // `request`: null: UCX does not send it. `end`: the bytes of `channel` up to its
  // record.
  void add(std::uint64_t number, UcxRequestPtr request, Body body,
           std::shared_ptr<Channel> channel, std::uint64_t end);
  // Whether the body is no longer read, and never will be. Forgets it then.
  bool is_read(std::uint64_t number);
  // From now on a copy of the body is kept. Returns what may still read the body
  // itself; may be null.
  UcxRequestPtr copy(std::uint64_t number);
  // Forgets the bodies of this channel.
  void drop(const Channel& channel);
  // Forgets all, and returns those that were not popped, in order. The caller must use
  // them before any lock is released.
  struct Left {
    std::uint64_t number;
    Body body;
    std::unique_ptr<std::byte[]> copied;  // holds the body; may be null
  };
  std::vector<Left> take_all();

 private:
  struct Entry {
    UcxRequestPtr request;
    Body body;
    std::unique_ptr<std::byte[]> copied;  // holds the body; null: the program does
    std::shared_ptr<Channel> channel;
    std::uint64_t end = 0;

    bool is_popped() const { return channel->popped_there() >= end; }
  };

  std::map<std::uint64_t, Entry> entries_;  // by number
};

}  // namespace allhands
