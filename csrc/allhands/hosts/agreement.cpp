#include "allhands/hosts/agreement.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "allhands/arena/mismatch.hpp"
#include "allhands/base/error.hpp"
#include "allhands/hosts/local_bytes.hpp"
#include "allhands/hosts/messages.hpp"

namespace allhands {
namespace {

// The start of what a leader tells the others: what its host calls. What the host's
// ranks tell follows. The first message has up to kMostFirst bytes of it all; the rest
// goes at once, in a message of its own.
struct Word {
  Descriptor descriptor;
  std::uint64_t bytes = 0;  // the bytes that the ranks tell
  // Whether the ranks differ; they then tell their descriptors.
  std::uint64_t is_different = 0;
};
static_assert(std::is_trivially_copyable_v<Word>);

// An array of 16 KiB goes with the first message.
constexpr std::size_t kMostFirst = std::size_t{17} << 10;

class Agreement {
 public:
  Agreement(const Crossing& crossing, const Descriptor& descriptor)
      : crossing_(crossing),
        hosts_(crossing.hosts),
        arena_(crossing.arena),
        descriptor_(descriptor),
        words_(static_cast<std::size_t>(hosts_.num_hosts())),
        wholes_(words_.size()),
        by_host_(words_.size()) {}

  void run(BytesView told) {
    meet_host(told, [](const List& by_rank) { return Lists(1, by_rank); });
    conclude();
  }

  void run_by_host(const std::vector<BytesView>& told) {
    if (arena_.size() == 1) {
      meet_host({}, [&](const List&) {
        Lists by_host;
        for (const BytesView each : told) by_host.push_back({each});
        return by_host;
      });
      return conclude();
    }
    Bytes mine;
    append_list(mine, told);
    meet_host(mine, [this](const List& by_rank) { return parts_by_host(by_rank); });
    conclude();
  }

  // What the hosts have told, within memory of this object.
  const std::vector<BytesView>& by_host() const { return by_host_; }

 private:
  // The end of a verdict. What all hosts have told is before it, or what all ranks have
  // called.
  static constexpr std::byte kAlike{0}, kDifferent{1};
  using List = std::vector<BytesView>;
  using Lists = std::vector<List>;

  void conclude() {
    if (!hosts_.is_leader()) return learn();
    exchange();
    if (arena_.size() > 1) tell_host();
    if (!are_alike()) throw_mismatch(called());
  }

  Word& own_word() { return words_[static_cast<std::size_t>(hosts_.host())]; }

  // `split` says what of each rank's bytes goes to each host; one list: all to all.
  template <class Split>
  void meet_host(BytesView told, const Split& split) {
    arena_.begin(crossing_.sequence, descriptor_, crossing_.limits);
    try {
      const std::vector<Bytes> read = gather_bytes(arena_, told, 0);
      if (!hosts_.is_leader()) return;
      List by_rank(read.begin(), read.end());
      by_rank.front() = told;  // the leader is the first of its host
      const Lists lists = split(by_rank);
      owns_.reserve(lists.size());
      for (const List& list : lists) {
        Bytes& own = owns_.emplace_back();
        own.reserve(sizeof(Word) + bytes_of_list(list));
        own.resize(sizeof(Word));
        append_list(own, list);
      }
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::Mismatch) throw;
      own_word().is_different = 1;
      owns_.assign(1, Bytes(sizeof(Word)));
      for (int rank = 0; rank < arena_.size(); ++rank)
        append(owns_.front(), &arena_.descriptor(rank), 1);
    }
  }

  // By host, what each local rank tells it.
  Lists parts_by_host(const List& by_rank) const {
    Lists by_host(words_.size());
    for (std::size_t local = 0; local < by_rank.size(); ++local) {
      const auto parts = parts_of(by_rank[local], words_.size());
      if (!parts) throw nonsense_of(crossing_, hosts_.local_ranks()[local]);
      for (std::size_t host = 0; host < words_.size(); ++host)
        by_host[host].push_back((*parts)[host]);
    }
    return by_host;
  }

  // What this host tells another one, or keeps.
  Bytes& own(std::size_t host) { return owns_[owns_.size() == 1 ? 0 : host]; }

  void exchange() {
    Word& mine = own_word();
    mine.descriptor = descriptor_;
    for (Bytes& each : owns_) {
      mine.bytes = each.size() - sizeof mine;
      std::memcpy(each.data(), &mine, sizeof mine);
    }
    const auto here = static_cast<std::size_t>(hosts_.host());
    by_host_[here] = BytesView(own(here)).subspan(sizeof mine);

    firsts_ = std::vector<FirstMessage>(words_.size());
    Messages sends(crossing_), firsts(crossing_), rests(crossing_);
    for_other_hosts([&](int leader, std::size_t host) {
      firsts_[host].transfer = firsts.receive_up_to(firsts_[host].room(), leader);
    });
    for_other_hosts([&](int leader, std::size_t host) {
      Bytes& all = own(host);
      const std::size_t num_first = std::min(all.size(), kMostFirst);
      sends.send(bytes_at(all.data(), num_first), leader);
      if (all.size() > num_first) sends.send(rest_of(all, num_first), leader);
    });
    firsts.wait();
    for_other_hosts([&](int leader, std::size_t host) {
      take_first(leader, host);
      if (Bytes& whole = wholes_[host]; !whole.empty())
        rests.receive(rest_of(whole, kMostFirst), leader);
    });
    rests.wait();
    sends.wait();
  }

  struct FirstMessage {
    Buffer room() const { return bytes_at(memory.get(), kMostFirst); }

    std::unique_ptr<std::byte[]> memory =
        std::make_unique_for_overwrite<std::byte[]>(kMostFirst);
    TransferPtr transfer;
  };

  // Reads a leader's first message. If that is not all, makes room for the whole.
  void take_first(int leader, std::size_t host) {
    const FirstMessage& first = firsts_[host];
    BytesView bytes(first.memory.get(), first.transfer->buffer.count);
    Word& word = words_[host];
    if (bytes.size() < sizeof word) throw nonsense_of(crossing_, leader);
    std::memcpy(&word, bytes.data(), sizeof word);
    const std::size_t length = sizeof word + word.bytes;
    if (word.bytes > kMostTold || bytes.size() != std::min(length, kMostFirst))
      throw nonsense_of(crossing_, leader);
    if (length > kMostFirst) {
      wholes_[host].resize(length);
      std::ranges::copy(bytes, wholes_[host].begin());
      bytes = wholes_[host];
    }
    by_host_[host] = bytes.subspan(sizeof word);
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

  // Tells the ranks of the host the verdict.
  void tell_host() {
    begin_telling(crossing_.limits);
    broadcast_bytes(arena_, verdict(), 0);
  }

  // Learns the verdict from the leader.
  void learn() {
    begin_telling(crossing_.patient_limits());
    verdict_ = broadcast_bytes(arena_, {}, 0);
    const auto nonsense = [this] {
      return nonsense_of(crossing_, hosts_.leader(hosts_.host()));
    };
    if (verdict_.empty()) throw nonsense();
    const BytesView told = BytesView(verdict_).first(verdict_.size() - 1);
    if (verdict_.back() == kDifferent) {
      std::vector<Descriptor> all(static_cast<std::size_t>(hosts_.size()));
      if (told.size() != all.size() * sizeof(Descriptor)) throw nonsense();
      std::memcpy(all.data(), told.data(), told.size());
      throw_mismatch(all);
    }
    std::optional<List> parts = parts_of(told, words_.size());
    if (!parts) throw nonsense();
    by_host_ = std::move(*parts);
  }

  void begin_telling(const Limits& limits) {
    // Ranks that have called different things cannot meet under their descriptors
    // again.
    const bool were_alike = own_word().is_different == 0;
    arena_.begin_part(were_alike ? descriptor_ : Descriptor{}, limits);
  }

  bool are_alike() const {
    return std::ranges::all_of(words_, [&](const Word& word) {
      return word.is_different == 0 && word.descriptor == descriptor_;
    });
  }

  Bytes verdict() const {
    const bool are_alike = this->are_alike();
    Bytes verdict;
    if (are_alike) {
      verdict.reserve(bytes_of_list(by_host_) + 1);
      append_list(verdict, by_host_);
    } else {
      const std::vector<Descriptor> all = called();
      append(verdict, all.data(), all.size());
    }
    verdict.push_back(are_alike ? kAlike : kDifferent);
    return verdict;
  }

  // By rank of the group.
  std::vector<Descriptor> called() const {
    std::vector<Descriptor> all;
    for (int rank = 0; rank < hosts_.size(); ++rank) {
      const auto host = static_cast<std::size_t>(hosts_.host_of(rank));
      const auto local = static_cast<std::size_t>(hosts_.local_rank_of(rank));
      all.push_back(words_[host].descriptor);
      const BytesView bytes = by_host_[host];
      if (words_[host].is_different == 0) continue;
      if (bytes.size() / sizeof(Descriptor) <= local)
        throw nonsense_of(crossing_, hosts_.leader(hosts_.host_of(rank)));
      std::memcpy(&all.back(), bytes.data() + local * sizeof(Descriptor),
                  sizeof(Descriptor));
    }
    return all;
  }

  // `all` by rank of the group.
  [[noreturn]] void throw_mismatch(const std::vector<Descriptor>& all) const {
    std::vector<int> ranks(all.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    throw mismatch_error(crossing_.group, crossing_.sequence, ranks, all);
  }

  const Crossing& crossing_;
  const Hosts& hosts_;
  Arena& arena_;
  const Descriptor& descriptor_;
  // The Word of this host, and what its ranks tell: one for all hosts, or by host.
  std::vector<Bytes> owns_;
  // On the leaders, by host:
  std::vector<Word> words_;
  std::vector<FirstMessage> firsts_;
  std::vector<Bytes> wholes_;  // what is like owns_ of the others, if it is longer
  Bytes verdict_;              // on the other ranks
  // What the ranks of each host tell, within these.
  std::vector<BytesView> by_host_;
};

template <class Run>
Contributions contributions(const Crossing& crossing, const Descriptor& descriptor,
                            const Run& run) {
  const auto agreement = std::make_shared<Agreement>(crossing, descriptor);
  run(*agreement);
  return Contributions(crossing, agreement->by_host(), agreement);
}

}  // namespace

Error nonsense_of(const Crossing& crossing, int rank) {
  return Error(ErrorKind::Backend,
               crossing.subject() + "what " + crossing.group.describe(rank) +
                   " says cannot be; do all ranks run the same version of allhands?");
}

Contributions::Contributions(const Crossing& crossing,
                             const std::vector<BytesView>& by_host,
                             std::shared_ptr<const void> holder)
    : holder_(std::move(holder)), of_(static_cast<std::size_t>(crossing.hosts.size())) {
  const Hosts& hosts = crossing.hosts;
  for (int host = 0; host < hosts.num_hosts(); ++host) {
    const std::vector<int>& ranks = hosts.ranks(host);
    const auto by_rank =
        parts_of(by_host[static_cast<std::size_t>(host)], ranks.size());
    if (!by_rank) throw nonsense_of(crossing, hosts.leader(host));
    for (std::size_t i = 0; i < ranks.size(); ++i)
      of_[static_cast<std::size_t>(ranks[i])] = (*by_rank)[i];
  }
}

Contributions agree(const Crossing& crossing, const Descriptor& descriptor,
                    BytesView told) {
  return contributions(crossing, descriptor,
                       [&](Agreement& agreement) { agreement.run(told); });
}

Contributions agree_by_host(const Crossing& crossing, const Descriptor& descriptor,
                            const std::vector<BytesView>& told) {
  return contributions(crossing, descriptor,
                       [&](Agreement& agreement) { agreement.run_by_host(told); });
}

}  // namespace allhands
