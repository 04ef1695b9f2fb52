#include "allhands/hosts/all_to_all.hpp"

#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "allhands/arena/collectives.hpp"
#include "allhands/arena/overlaps.hpp"
#include "allhands/arena/row.hpp"
#include "allhands/arena/share_counts.hpp"
#include "allhands/hosts/agreement.hpp"
#include "allhands/hosts/messages.hpp"
#include "allhands/hosts/small.hpp"
#include "allhands/kernels/pack.hpp"

namespace allhands {
namespace {

using Count = std::uint64_t;

// The start of what a rank tells. If the rank sends its shares along, it is followed by
// the number of elements for each rank of the host that is told, and these elements.
struct Head {
  Count digest;  // see digest_of_shares
  Count has_shares;
};

class AllToAll {
 public:
  AllToAll(const Crossing& crossing, const Operation& operation)
      : crossing_(crossing),
        operation_(operation),
        outputs_(operation.outputs),
        inputs_(operation.inputs) {}

  void run() {
    const bool is_small = num_bytes(inputs_) <= kSmallBytes / index(size());
    const Contributions told = tell(is_small);
    Count digest = 0;
    bool have_all = true;
    for (int rank = 0; rank < size(); ++rank) {
      const Head head = head_of(told, rank);
      digest += head.digest;
      have_all = have_all && head.has_shares != 0;
    }
    if (digest != 0) throw_disagreement();
    if (have_all)
      take_shares(told);
    else
      exchange();
  }

 private:
  int size() const { return crossing_.group.size(); }
  int self() const { return crossing_.group.rank; }
  Descriptor descriptor() const {
    return operation_.collective->descriptor(operation_);
  }

  // Each host learns the shares of its own ranks.
  Contributions tell(bool has_shares) const {
    const Hosts& hosts = crossing_.hosts;
    const Head head = {digest_of_shares(self(), outputs_, inputs_), has_shares};
    std::vector<Bytes> by_host;
    for (int host = 0; host < hosts.num_hosts(); ++host) {
      Bytes& bytes = by_host.emplace_back();
      append(bytes, &head, 1);
      if (!has_shares) continue;
      std::vector<Buffer> shares;
      for (const int rank : hosts.ranks(host)) shares.push_back(inputs_[index(rank)]);
      const std::vector<Count> counts = counts_of(shares);
      append(bytes, counts.data(), counts.size());
      const std::size_t at = bytes.size();
      bytes.resize(at + num_bytes(shares));
      Row(shares).pack(0, count_of(shares), bytes.data() + at);
    }
    return agree_by_host(crossing_, descriptor(), {by_host.begin(), by_host.end()});
  }

  static std::vector<Count> counts_of(const std::vector<Buffer>& list) {
    std::vector<Count> counts;
    for (const Buffer& buffer : list) counts.push_back(buffer.count);
    return counts;
  }

  Head head_of(const Contributions& told, int rank) const {
    Head head;
    if (told.of(rank).size() < sizeof head) throw nonsense_of(crossing_, rank);
    std::memcpy(&head, told.of(rank).data(), sizeof head);
    return head;
  }

  void take_shares(const Contributions& told) const {
    const auto local = index(crossing_.hosts.local_rank_of(self()));
    const std::size_t n = crossing_.hosts.local_ranks().size();
    const std::size_t element = size_of(dtype_of(inputs_));
    std::vector<Count> counts(n);
    for (int rank = 0; rank < size(); ++rank) {
      BytesView bytes = told.of(rank).subspan(sizeof(Head));
      if (bytes.size() < n * sizeof(Count)) throw nonsense_of(crossing_, rank);
      std::memcpy(counts.data(), bytes.data(), n * sizeof(Count));
      bytes = bytes.subspan(n * sizeof(Count));
      std::size_t at = 0, left = bytes.size() / element;
      for (std::size_t before = 0; before < local; ++before) {
        const Count count = counts[before];
        if (count > left) throw nonsense_of(crossing_, rank);
        at += count;
        left -= count;
      }
      const Buffer& output = outputs_[index(rank)];
      if (counts[local] != output.count || output.count > left)
        throw nonsense_of(crossing_, rank);
      unpack(bytes.data() + at * element, output, 0, output.count);
    }
  }

  // Sends and receives everything at once.
  void exchange() const {
    std::optional<CopiedInputs> copied;
    if (writes_own_inputs(operation_, self())) copied.emplace(operation_);
    const std::vector<Buffer>& inputs = copied ? copied->operation().inputs : inputs_;
    Messages messages(crossing_);
    for (int step = 1; step < size(); ++step) {
      const int from = (self() + size() - step) % size(), to = (self() + step) % size();
      messages.receive(outputs_[index(from)], from);
      messages.send(inputs[index(to)], to);
    }
    const auto own = index(self());
    copy(inputs[own], outputs_[own], 0, outputs_[own].count);
    messages.wait();
  }

  // All ranks know that a pair disagrees, and find out which.
  [[noreturn]] void throw_disagreement() const {
    const std::vector<Count> sends = counts_of(inputs_), expects = counts_of(outputs_);
    Bytes mine;
    append(mine, sends.data(), sends.size());
    append(mine, expects.data(), expects.size());
    const Contributions told = agree(crossing_, descriptor(), mine);
    const auto count_of = [&](int rank, std::size_t i) {
      if (told.of(rank).size() != mine.size()) throw nonsense_of(crossing_, rank);
      Count count;
      std::memcpy(&count, told.of(rank).data() + i * sizeof count, sizeof count);
      return count;
    };
    const auto n = index(size());
    ShareDisagreement disagreement;
    for (int from = 0; from < size(); ++from)
      for (int to = 0; to < size(); ++to)
        disagreement.add(from, to, count_of(from, index(to)),
                         count_of(to, n + index(from)));
    if (disagreement.is_none()) throw nonsense_of(crossing_, self());
    throw disagreement.error(crossing_.arena.describe_call());
  }

  const Crossing& crossing_;
  const Operation& operation_;
  const std::vector<Buffer>& outputs_;
  const std::vector<Buffer>& inputs_;
};

}  // namespace

void all_to_all(const Crossing& crossing, const Operation& operation) {
  AllToAll(crossing, operation).run();
}

}  // namespace allhands
