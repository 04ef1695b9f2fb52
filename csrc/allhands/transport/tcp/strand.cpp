#include "allhands/transport/tcp/strand.hpp"

#include <array>
#include <mutex>
#include <utility>

#include "allhands/transport/tcp/connection.hpp"

namespace allhands {

Strand::Strand(StreamOwner& owner, Connection& connection, Bodies& bodies,
               unsigned number, std::function<void()> tell)
    : Stream(owner, connection.peer()),
      connection_(connection),
      bodies_(bodies),
      number_(number),
      tell_(std::move(tell)) {}

std::optional<std::size_t> Strand::load() {
  const std::lock_guard lock(write_mutex());
  if (!is_writable()) return std::nullopt;
  return drop_confirmed();
}

void Strand::write(std::uint64_t number, std::span<const std::byte> body) {
  static constexpr std::byte kPadding[kFrameAlign] = {};
  const std::lock_guard lock(write_mutex());
  if (state() == State::Lost) return;
  FrameHead head = {static_cast<std::uint32_t>(body.size()),
                    FrameKind::Body,
                    0,
                    next_number(),
                    0,
                    0,
                    number};
  std::array<iovec, 3> parts = {
      {{&head, sizeof(head)},
       {const_cast<std::byte*>(body.data()), body.size()},
       {const_cast<std::byte*>(kPadding), padded(body.size()) - body.size()}}};
  send_some(parts, parts.size());
}

void Strand::lose_body(std::uint64_t number) {
  lose_landing([&] { return coming_ == number; });
}

std::byte* Strand::on_body(std::uint64_t number, std::size_t bytes) {
  coming_ = number;
  return bodies_.begin(number, bytes, number_);
}

void Strand::on_body_end(std::uint64_t number) { bodies_.end(number); }

}  // namespace allhands
