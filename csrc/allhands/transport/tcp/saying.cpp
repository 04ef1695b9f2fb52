#include "allhands/transport/tcp/saying.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

namespace allhands {
namespace {

constexpr std::size_t kMaxRanks = 4096;
constexpr std::size_t kMaxText = std::size_t{16} << 10;

struct Head {
  std::uint32_t how;
  std::uint32_t has_why;
  std::uint32_t kind;
  std::uint32_t num_ranks;
  std::uint32_t text_bytes;
  std::int32_t cause_rank;
  std::uint32_t cause_bytes;
};
static_assert(sizeof(Head) + kMaxRanks * sizeof(std::int32_t) + kMaxText +
                  RemoteException::kMaxBytes <=
              Saying::kMaxBytes);

ErrorKind kind_of(std::uint32_t kind) {
  // An interrupt concerns only the caller that was interrupted.
  return kind < static_cast<std::uint32_t>(ErrorKind::Interrupted)
             ? static_cast<ErrorKind>(kind)
             : ErrorKind::Backend;
}

}  // namespace

std::vector<std::byte> Saying::encode() const {
  Head head = {};
  head.how = static_cast<std::uint32_t>(how);
  head.has_why = why ? 1 : 0;
  std::string texts;  // the error's text, and that of its cause
  std::vector<std::int32_t> ranks;
  if (why) {
    texts = std::string(why->what()).substr(0, kMaxText);
    head.text_bytes = static_cast<std::uint32_t>(texts.size());
    if (const RemoteException* const cause = why->cause()) {
      texts += cause->text.substr(0, RemoteException::kMaxBytes);
      head.cause_rank = cause->rank;
      head.cause_bytes = static_cast<std::uint32_t>(texts.size()) - head.text_bytes;
    }
    ranks.assign(why->ranks().begin(),
                 why->ranks().begin() + static_cast<std::ptrdiff_t>(
                                            std::min(why->ranks().size(), kMaxRanks)));
    head.kind = static_cast<std::uint32_t>(why->kind());
    head.num_ranks = static_cast<std::uint32_t>(ranks.size());
  }
  const std::size_t rank_bytes = ranks.size() * sizeof(ranks[0]);
  std::vector<std::byte> bytes(sizeof(head) + rank_bytes + texts.size());
  std::memcpy(bytes.data(), &head, sizeof(head));
  if (rank_bytes != 0)
    std::memcpy(bytes.data() + sizeof(head), ranks.data(), rank_bytes);
  if (!texts.empty())
    std::memcpy(bytes.data() + sizeof(head) + rank_bytes, texts.data(), texts.size());
  return bytes;
}

Saying Saying::decode(std::span<const std::byte> bytes) {
  Head head = {};
  if (bytes.size() >= sizeof(head)) std::memcpy(&head, bytes.data(), sizeof(head));
  std::vector<std::int32_t> ranks(std::min<std::size_t>(head.num_ranks, kMaxRanks));
  const std::size_t rank_bytes = ranks.size() * sizeof(std::int32_t);
  if (bytes.size() < sizeof(head) + rank_bytes || ranks.size() != head.num_ranks ||
      head.how > static_cast<std::uint32_t>(Presence::Aborted) ||
      bytes.size() - sizeof(head) - rank_bytes !=
          std::uint64_t{head.text_bytes} + head.cause_bytes ||
      head.cause_bytes > RemoteException::kMaxBytes)
    throw LinkError("what a rank says of itself makes no sense");
  Saying saying{static_cast<Presence>(head.how)};
  if (head.has_why == 0) return saying;
  if (rank_bytes != 0)
    std::memcpy(ranks.data(), bytes.data() + sizeof(head), rank_bytes);
  const auto* text =
      reinterpret_cast<const char*>(bytes.data() + sizeof(head) + rank_bytes);
  saying.why.emplace(kind_of(head.kind), std::string(text, head.text_bytes),
                     std::vector<int>(ranks.begin(), ranks.end()));
  if (head.cause_bytes != 0)
    saying.why->set_cause(
        {head.cause_rank, std::string(text + head.text_bytes, head.cause_bytes)});
  return saying;
}

}  // namespace allhands
