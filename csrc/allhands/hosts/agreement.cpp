#include "allhands/hosts/agreement.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>

#include "allhands/arena/mismatch.hpp"
#include "allhands/base/error.hpp"
#include "allhands/hosts/local_bytes.hpp"
#include "allhands/hosts/messages.hpp"

namespace allhands {
namespace {

// The start of a leader's first message: what its host calls. It is followed by as much
// of what the host's ranks tell as kInline allows. The rest follows at once, in a
// message of its own.
struct Word {
  Descriptor descriptor;
  std::uint64_t bytes = 0;  // the bytes that the ranks tell
  // Whether the ranks differ; they then tell their descriptors.
  std::uint64_t is_different = 0;
};
static_assert(std::is_trivially_copyable_v<Word>);

constexpr std::size_t kInline = std::size_t{16} << 10;

class Agreement {
 public:
  Agreement(const Crossing& crossing, const Descriptor& descriptor)
      : crossing_(crossing),
        hosts_(crossing.hosts),
        arena_(crossing.arena),
        descriptor_(descriptor),
        words_(static_cast<std::size_t>(hosts_.num_hosts())),
        by_host_(words_.size()) {}

  Contributions run(BytesView told) {
    meet_host(told);
    if (hosts_.is_leader()) exchange();
    const Bytes verdict = tell_host();
    Bytes rest(verdict.begin() + 1, verdict.end());
    if (verdict.front() == kDifferent) throw_mismatch(rest);
    return Contributions(crossing_, std::move(rest));
  }

 private:
  // The start of a verdict. It is followed by what all hosts have told, joined, or by
  // what all ranks have called.
  static constexpr std::byte kAlike{0}, kDifferent{1};

  Word& own_word() { return words_[static_cast<std::size_t>(hosts_.host())]; }
  Bytes& own_bytes() { return by_host_[static_cast<std::size_t>(hosts_.host())]; }

  void meet_host(BytesView told) {
    arena_.begin(crossing_.sequence, descriptor_, crossing_.limits);
    try {
      const std::vector<Bytes> by_rank = gather_bytes(arena_, told, 0);
      if (hosts_.is_leader()) own_bytes() = joined(by_rank);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::Mismatch) throw;
      own_word().is_different = 1;
      for (int rank = 0; rank < arena_.size(); ++rank)
        append(own_bytes(), &arena_.descriptor(rank), 1);
    }
  }

  void exchange() {
    Word& mine = own_word();
    mine.descriptor = descriptor_;
    mine.bytes = own_bytes().size();
    const std::size_t num_inline = std::min(own_bytes().size(), kInline);
    Bytes first;
    first.reserve(sizeof mine + num_inline);
    append(first, &mine, 1);
    append(first, own_bytes().data(), num_inline);

    std::vector<FirstMessage> received(words_.size());
    Messages sends(crossing_), firsts(crossing_), rests(crossing_);
    for_other_hosts([&](int leader, std::size_t host) {
      received[host].transfer = firsts.receive_up_to(received[host].room(), leader);
    });
    for_other_hosts([&](int leader, std::size_t) {
      sends.send(bytes_at(first.data(), first.size()), leader);
      if (own_bytes().size() > num_inline)
        sends.send(rest_of(own_bytes(), num_inline), leader);
    });
    firsts.wait();
    for_other_hosts([&](int leader, std::size_t host) {
      Bytes& bytes = by_host_[host];
      const std::size_t num_there = take(received[host], leader, words_[host], bytes);
      if (bytes.size() > num_there) rests.receive(rest_of(bytes, num_there), leader);
    });
    rests.wait();
    sends.wait();
  }

  struct FirstMessage {
    static constexpr std::size_t kMostBytes = sizeof(Word) + kInline;

    Buffer room() const { return bytes_at(memory.get(), kMostBytes); }

    std::unique_ptr<std::byte[]> memory =
        std::make_unique_for_overwrite<std::byte[]>(kMostBytes);
    TransferPtr transfer;
  };

  // Reads a leader's first message. Returns how many of the bytes are in it.
  std::size_t take(const FirstMessage& message, int leader, Word& word,
                   Bytes& bytes) const {
    const std::size_t length = message.transfer->buffer.count;
    if (length < sizeof word) throw nonsense_of(crossing_, leader);
    std::memcpy(&word, message.memory.get(), sizeof word);
    const std::size_t num_inline = length - sizeof word;
    if (word.bytes > kMostTold ||
        num_inline != std::min<std::size_t>(word.bytes, kInline))
      throw nonsense_of(crossing_, leader);
    bytes.resize(word.bytes);
    std::copy_n(message.memory.get() + sizeof word, num_inline, bytes.begin());
    return num_inline;
  }

  static Buffer rest_of(Bytes& bytes, std::size_t at) {
    return bytes_at(bytes.data() + at, bytes.size() - at);
  }

  template <class Each>
  void for_other_hosts(Each each) const {
    // Each leader begins elsewhere.
    for (int step = 1; step < hosts_.num_hosts(); ++step) {
      const int host = (hosts_.host() + step) % hosts_.num_hosts();
      each(hosts_.leader(host), static_cast<std::size_t>(host));
    }
  }

  // Returns the verdict, on every rank of the host.
  Bytes tell_host() {
    const Bytes mine = hosts_.is_leader() ? verdict() : Bytes();
    if (arena_.size() == 1) return mine;
    // Ranks that have called different things cannot meet under their descriptors
    // again.
    const bool were_alike = own_word().is_different == 0;
    arena_.begin_part(
        were_alike ? descriptor_ : Descriptor{},
        hosts_.is_leader() ? crossing_.limits : crossing_.patient_limits());
    Bytes told = broadcast_bytes(arena_, mine, 0);
    if (told.empty()) throw nonsense_of(crossing_, hosts_.leader(hosts_.host()));
    return told;
  }

  Bytes verdict() const {
    const bool are_alike = std::ranges::all_of(words_, [&](const Word& word) {
      return word.is_different == 0 && word.descriptor == descriptor_;
    });
    Bytes verdict = {are_alike ? kAlike : kDifferent};
    if (are_alike) {
      const Bytes all = joined(by_host_);
      append(verdict, all.data(), all.size());
    } else {
      const std::vector<Descriptor> all = called();
      append(verdict, all.data(), all.size());
    }
    return verdict;
  }

  // By rank of the group.
  std::vector<Descriptor> called() const {
    std::vector<Descriptor> all;
    for (int rank = 0; rank < hosts_.size(); ++rank) {
      const auto host = static_cast<std::size_t>(hosts_.host_of(rank));
      const auto local = static_cast<std::size_t>(hosts_.local_rank_of(rank));
      all.push_back(words_[host].descriptor);
      const Bytes& bytes = by_host_[host];
      if (words_[host].is_different == 0) continue;
      if (bytes.size() / sizeof(Descriptor) <= local)
        throw nonsense_of(crossing_, hosts_.leader(hosts_.host_of(rank)));
      std::memcpy(&all.back(), bytes.data() + local * sizeof(Descriptor),
                  sizeof(Descriptor));
    }
    return all;
  }

  [[noreturn]] void throw_mismatch(BytesView told) const {
    std::vector<Descriptor> all(static_cast<std::size_t>(hosts_.size()));
    if (told.size() != all.size() * sizeof(Descriptor))
      throw nonsense_of(crossing_, hosts_.leader(hosts_.host()));
    std::memcpy(all.data(), told.data(), told.size());
    std::vector<int> ranks(all.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    throw mismatch_error(crossing_.group, crossing_.sequence, ranks, all);
  }

  const Crossing& crossing_;
  const Hosts& hosts_;
  Arena& arena_;
  const Descriptor& descriptor_;
  std::vector<Word> words_;     // by host; on the leaders
  std::vector<Bytes> by_host_;  // by host: what its ranks tell
};

}  // namespace

Error nonsense_of(const Crossing& crossing, int rank) {
  return Error(ErrorKind::Backend,
               crossing.subject() + "what " + crossing.group.describe(rank) +
                   " says cannot be; do all ranks run the same version of allhands?");
}

Contributions::Contributions(const Crossing& crossing, Bytes all)
    : all_(std::move(all)), of_(static_cast<std::size_t>(crossing.hosts.size())) {
  const Hosts& hosts = crossing.hosts;
  const auto by_host = parts_of(all_, static_cast<std::size_t>(hosts.num_hosts()));
  if (!by_host) throw nonsense_of(crossing, hosts.leader(hosts.host()));
  for (int host = 0; host < hosts.num_hosts(); ++host) {
    const std::vector<int>& ranks = hosts.ranks(host);
    const auto by_rank =
        parts_of((*by_host)[static_cast<std::size_t>(host)], ranks.size());
    if (!by_rank) throw nonsense_of(crossing, hosts.leader(host));
    for (std::size_t i = 0; i < ranks.size(); ++i)
      of_[static_cast<std::size_t>(ranks[i])] = (*by_rank)[i];
  }
}

Contributions agree(const Crossing& crossing, const Descriptor& descriptor,
                    BytesView told) {
  return Agreement(crossing, descriptor).run(told);
}

}  // namespace allhands
