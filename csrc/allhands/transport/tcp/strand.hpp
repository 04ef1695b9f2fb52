// One of several sockets beside a connection, for the bodies of its large records: the
// bodies of a connection with strands go over these, each over the one that has the
// least on its way. The strands of two processes may lead over several networks.
//
// A strand is made on first use. It breaks and goes on by itself, as the connection
// does, maybe over another network; it is lost only together with the connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "allhands/transport/tcp/bodies.hpp"
#include "allhands/transport/tcp/stream.hpp"

namespace allhands {

// One of several sockets beside a connection.
class Strand final : public Stream {
 public:
  // Bodies of fewer bytes go over the connection itself.
  static constexpr std::size_t kLeastBytes = std::size_t{64} << 10;

  // `number`: from 1 on. `connection` must outlive the strand, as well as `bodies`.
  // `tell`: see Stream.
  Strand(StreamOwner& owner, Connection& connection, Bodies& bodies, unsigned number,
         std::function<void()> tell);

  Connection& whole() override { return connection_; }
  unsigned strand() const override { return number_; }

  // Any thread: how many bytes are on their way; none if it takes nothing now.
  std::optional<std::size_t> load();
  // Any thread: sends the body with this number. Does nothing if the strand is lost.
  void write(std::uint64_t number, std::span<const std::byte> body);
  // Any thread: the rest of this body goes nowhere, if it comes just now.
  void lose_body(std::uint64_t number);

 private:
  void tell() override { tell_(); }
  std::byte* on_body(std::uint64_t number, std::size_t bytes) override;
  void on_body_end(std::uint64_t number) override;

  Connection& connection_;
  Bodies& bodies_;
  const unsigned number_;
  const std::function<void()> tell_;
  std::uint64_t coming_ = 0;  // the body that came last; guarded as the reader is
};

}  // namespace allhands
