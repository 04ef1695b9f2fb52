// Every pair of ranks must agree on how much goes from one to the other. Each rank
// stages its send and receive counts with its first round; everybody checks all pairs,
// so that a disagreement is raised on every rank.
#include <algorithm>
#include <cstring>
#include <string>

#include "allhands/arena/collectives.hpp"
#include "allhands/arena/direct.hpp"
#include "allhands/arena/peer_buffers.hpp"
#include "allhands/arena/rounds.hpp"
#include "allhands/base/error.hpp"
#include "allhands/kernels/pack.hpp"

namespace allhands {
namespace {

using Count = std::uint64_t;

class AllToAll {
 public:
  AllToAll(Arena& arena, const std::vector<Buffer>& outputs,
           const std::vector<Buffer>& inputs)
      : arena_(arena),
        outputs_(outputs),
        inputs_(inputs),
        size_(static_cast<std::size_t>(arena.size())),
        element_(size_of(inputs.front().dtype)),
        most_((arena.chunk_bytes() - counts_bytes()) / size_ / kCacheLine * kCacheLine /
              element_) {}

  void run() {
    stage_counts();
    if (direct_all_to_all(arena_, outputs_, inputs_, [this] { check_counts(); }))
      return;
    stage_counts();  // the direct way may have used up the first chunk
    stage(0);
    arena_.enter();
    check_counts();
    const std::size_t rounds = Cut{largest(), most_}.rounds();
    if (rounds > 1) arena_.use_chunks(rounds);
    collect(0);
    for (std::size_t i = 1; i < rounds; ++i) {
      stage(i);
      arena_.wait_all(arena_.publish());
      collect(i);
    }
  }

 private:
  static constexpr std::size_t kCacheLine = 64;

  // In every slot: room for what PeerBuffers says there, how much this rank sends to
  // each rank, how much it expects from each, then one part per receiving rank.
  std::size_t counts_bytes() const {
    const std::size_t bytes =
        PeerBuffers::said_bytes(size_) + 2 * size_ * sizeof(Count);
    return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
  }
  Count* sent_by(int rank) const {
    return reinterpret_cast<Count*>(arena_.slot(rank, 0) +
                                    PeerBuffers::said_bytes(size_));
  }
  Count* expected_by(int rank) const { return sent_by(rank) + size_; }
  std::byte* part(int from, std::size_t i, int to) const {
    return arena_.slot(from, i) + counts_bytes() +
           static_cast<std::size_t>(to) * most_ * element_;
  }

  void stage_counts() {
    for (std::size_t rank = 0; rank < size_; ++rank) {
      sent_by(arena_.rank())[rank] = inputs_[rank].count;
      expected_by(arena_.rank())[rank] = outputs_[rank].count;
    }
  }

  void stage(std::size_t i) {
    for (int to = 0; to < arena_.size(); ++to) {
      if (to == arena_.rank()) continue;
      const Buffer& input = inputs_[static_cast<std::size_t>(to)];
      const Cut cut = {input.count, most_};
      pack(input, cut.begin(i), cut.length(i), part(arena_.rank(), i, to));
    }
  }

  void collect(std::size_t i) {
    for (int step = 0; step < arena_.size(); ++step) {
      const int from = (arena_.rank() + step) % arena_.size();  // spread the readers
      const Buffer& output = outputs_[static_cast<std::size_t>(from)];
      const Cut cut = {output.count, most_};
      if (from == arena_.rank())
        copy(inputs_[static_cast<std::size_t>(from)], output, cut.begin(i),
             cut.length(i));
      else
        unpack(part(from, i, arena_.rank()), output, cut.begin(i), cut.length(i));
    }
  }

  void check_counts() const {
    std::string text;
    std::vector<int> ranks;
    for (int from = 0; from < arena_.size(); ++from)
      for (int to = 0; to < arena_.size(); ++to) {
        const Count sent = sent_by(from)[to], expected = expected_by(to)[from];
        if (sent == expected) continue;
        text += (text.empty() ? "rank " : "; rank ") + std::to_string(from) +
                " sends " + std::to_string(sent) + " elements to rank " +
                std::to_string(to) + ", which expects " + std::to_string(expected);
        for (const int rank : {from, to})
          if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end())
            ranks.push_back(rank);
      }
    if (!text.empty())
      throw Error(ErrorKind::Mismatch, arena_.describe_call() + ": " + text, ranks);
  }

  std::size_t largest() const {
    Count most = 0;
    for (int from = 0; from < arena_.size(); ++from)
      most = std::max(most, *std::max_element(sent_by(from), sent_by(from) + size_));
    return most;
  }

  Arena& arena_;
  const std::vector<Buffer>& outputs_;
  const std::vector<Buffer>& inputs_;
  const std::size_t size_;
  const std::size_t element_;
  const std::size_t most_;  // elements of one part in one round
};

}  // namespace

void all_to_all(Arena& arena, const std::vector<Buffer>& outputs,
                const std::vector<Buffer>& inputs, const Limits& limits) {
  arena.begin({.op = Op::AllToAll, .dtype = inputs.front().dtype}, limits);
  AllToAll(arena, outputs, inputs).run();
}

}  // namespace allhands
