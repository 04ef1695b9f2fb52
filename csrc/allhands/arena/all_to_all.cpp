// Every pair of ranks must agree on how much goes from one to the other. Each rank
// stages its send and receive counts with its first round, and a digest of them: what
// all ranks send minus what all expect, which is 0 if every pair agrees. So every rank
// finds a disagreement from one word per rank, and looks at all pairs only to say which
// disagree. Large shares are not staged if the host allows the receiver to read them in
// place.
#include <algorithm>
#include <cstring>
#include <string>

#include "allhands/arena/checks.hpp"
#include "allhands/arena/collectives.hpp"
#include "allhands/arena/peer_arrays.hpp"
#include "allhands/arena/rounds.hpp"
#include "allhands/arena/share_counts.hpp"
#include "allhands/arena/single_copy.hpp"
#include "allhands/base/error.hpp"
#include "allhands/base/mixed.hpp"
#include "allhands/base/read_once.hpp"
#include "allhands/kernels/pack.hpp"

namespace allhands {
namespace {

using Count = std::uint64_t;

// What a rank sends to another.
struct Share {
  Count count;
  std::uint64_t address;  // where the receiver reads it; 0: it is staged
};

// What a rank says of all its counts together.
struct Summary {
  std::uint64_t digest;
  Count largest_staged;       // of what it sends
  std::uint64_t is_any_read;  // of what it sends
  std::uint64_t check;        // of the other three, which something may write over

  std::uint64_t right_check() const {
    return mixed({digest, largest_staged, is_any_read});
  }
};

class AllToAll {
 public:
  AllToAll(Arena& arena, const Ways& ways, const std::vector<Buffer>& outputs,
           const std::vector<Buffer>& inputs)
      : arena_(arena),
        ways_(ways),
        outputs_(outputs),
        inputs_(inputs),
        size_(static_cast<std::size_t>(arena.size())),
        element_(size_of(inputs.front().dtype)),
        most_((arena.chunk_bytes() - counts_bytes()) / size_ / kCacheLine * kCacheLine /
              element_),
        offers_(size_) {}

  void run() {
    if (is_mapped()) return;
    choose_offers();
    arena_.enter([this] {
      stage_counts();
      stage(0);
    });
    take_counts();
    const std::size_t rounds = Cut{largest_staged_, most_}.rounds();
    if (rounds > 1) arena_.use_chunks(rounds);
    collect(0);
    for (std::size_t i = 1; i < rounds; ++i) {
      stage(i);
      arena_.meet();
      collect(i);
    }
    if (is_any_read_) arena_.part_from_peers();
  }

 private:
  static constexpr std::size_t kCacheLine = 64;

  // Each slot holds: room for what PeerArrays says there, the summary, how much this
  // rank sends to each rank, how much it expects from each, then one part per receiving
  // rank.
  std::size_t counts_bytes() const {
    const std::size_t bytes = PeerArrays::said_bytes(size_) + sizeof(Summary) +
                              size_ * (sizeof(Share) + sizeof(Count));
    return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
  }
  Summary& summary_of(int rank) const {
    return *reinterpret_cast<Summary*>(arena_.slot(rank, 0) +
                                       PeerArrays::said_bytes(size_));
  }
  Share* sent_by(int rank) const {
    return reinterpret_cast<Share*>(&summary_of(rank) + 1);
  }
  Count* expected_by(int rank) const {
    return reinterpret_cast<Count*>(sent_by(rank) + size_);
  }
  std::byte* part(int from, std::size_t i, int to) const {
    return arena_.slot(from, i) + counts_bytes() +
           static_cast<std::size_t>(to) * most_ * element_;
  }

  // Tries to do the operation from array to array in shared memory. Returns whether it
  // is done.
  bool is_mapped() {
    if (!ways_.may(Way::Mapped)) return false;
    stage_counts();
    return single_copy::all_to_all(arena_, outputs_, inputs_,
                                   [this] { take_counts(); });
  }

  void stage_counts() {
    for (std::size_t i = 0; i < size_; ++i) {
      sent_by(arena_.rank())[i] = {inputs_[i].count, offers_[i]};
      expected_by(arena_.rank())[i] = outputs_[i].count;
    }
    summary_of(arena_.rank()) = summary();
  }

  Summary summary() const {
    Summary summary = {};
    summary.digest = digest_of_shares(arena_.rank(), outputs_, inputs_);
    for (int peer = 0; peer < arena_.size(); ++peer) {
      const auto i = static_cast<std::size_t>(peer);
      if (peer == arena_.rank()) continue;
      if (offers_[i] != 0)
        summary.is_any_read = 1;
      else
        summary.largest_staged =
            std::max<Count>(summary.largest_staged, inputs_[i].count);
    }
    summary.check = summary.right_check();
    return summary;
  }

  // Chooses which shares the receivers read in place: the large ones.
  void choose_offers() {
    if (!ways_.may(Way::Read)) return;
    const auto self = static_cast<std::size_t>(arena_.rank());
    for (std::size_t to = 0; to < size_; ++to) {
      if (to == self || !inputs_[to].is_contiguous() ||
          inputs_[to].num_bytes() < ways_.least_share ||
          inputs_[to].num_bytes() >= ways_.most_share)
        continue;
      if (single_copy::writes_inputs(outputs_, inputs_, self)) return;
      offers_[to] = reinterpret_cast<std::uint64_t>(inputs_[to].data);
    }
  }

  void stage(std::size_t i) {
    for (int to = 0; to < arena_.size(); ++to) {
      if (to == arena_.rank() || offers_[static_cast<std::size_t>(to)] != 0) continue;
      const Buffer& input = inputs_[static_cast<std::size_t>(to)];
      const Cut cut = {input.count, most_};
      pack(input, cut.begin(i), cut.length(i), part(arena_.rank(), i, to));
    }
  }

  // A share that is not staged is read whole, in the first round. A rank's own share
  // comes last, which is up to twice as fast where all shares just fill the
  // second-level cache.
  void collect(std::size_t i) {
    for (int step = 1; step <= arena_.size(); ++step) {
      const int from = (arena_.rank() + step) % arena_.size();  // spread the readers
      const Buffer& output = outputs_[static_cast<std::size_t>(from)];
      const std::uint64_t address = addresses_[static_cast<std::size_t>(from)];
      const Cut cut = {output.count, most_};
      if (from != arena_.rank() && address == 0)
        unpack(part(from, i, arena_.rank()), output, cut.begin(i), cut.length(i),
               ways_.stores);
      else if (i == 0 && address != 0)
        arena_.read_peer(from, address, output);
      else if (i == 0)
        copy(inputs_[static_cast<std::size_t>(from)], output, 0, output.count,
             ways_.stores);
    }
  }

  // Checks what the ranks say, and notes what is needed once they may be in the next
  // operation. Reads each word once, and not the words that this rank wrote itself.
  void take_counts() {
    std::uint64_t digest = 0;
    int unlike = -1;
    addresses_.resize(size_);
    for (int from = 0; from < arena_.size(); ++from) {
      const Summary summary = told_by(from);
      digest += summary.digest;
      largest_staged_ = std::max(largest_staged_, summary.largest_staged);
      is_any_read_ = is_any_read_ || summary.is_any_read != 0;
      const auto i = static_cast<std::size_t>(from);
      const Share share = sent(from, arena_.rank());
      if (share.count != outputs_[i].count) unlike = from;
      if (from == arena_.rank()) continue;
      addresses_[i] = share.address;
      if (share.address == 0 ? share.count > summary.largest_staged
                             : summary.is_any_read == 0)
        unlike = from;
    }
    if (digest != 0) throw_disagreement();
    if (unlike >= 0) throw arena_.nonsense_of(unlike);
  }

  Summary told_by(int rank) const {
    if (rank == arena_.rank()) return summary();
    Summary& said = summary_of(rank);
    const Summary told = {read_once(said.digest), read_once(said.largest_staged),
                          read_once(said.is_any_read), read_once(said.check)};
    if (told.check != told.right_check()) throw arena_.nonsense_of(rank);
    return told;
  }

  // A mismatch leaves all ranks at the same point. So a disagreement is a mismatch only
  // if all ranks find it.
  [[noreturn]] void throw_disagreement() const {
    ShareDisagreement disagreement;
    for (int from = 0; from < arena_.size(); ++from)
      for (int to = 0; to < arena_.size(); ++to)
        disagreement.add(arena_.group_rank(from), arena_.group_rank(to),
                         sent(from, to).count, expected_from(from, to));
    if (disagreement.is_none())
      throw Error(ErrorKind::Backend,
                  arena_.describe_call() +
                      ": what the ranks say of their counts does not hold together; "
                      "something has written over it in shared memory");
    throw disagreement.error(arena_.describe_call());
  }

  Share sent(int from, int to) const {
    const auto index = static_cast<std::size_t>(to);
    if (from == arena_.rank()) return {inputs_[index].count, offers_[index]};
    Share& said = sent_by(from)[to];
    return {read_once(said.count), read_once(said.address)};
  }
  Count expected_from(int from, int to) const {
    if (to == arena_.rank()) return outputs_[static_cast<std::size_t>(from)].count;
    return read_once(expected_by(to)[from]);
  }

  Arena& arena_;
  const Ways& ways_;
  const std::vector<Buffer>& outputs_;
  const std::vector<Buffer>& inputs_;
  const std::size_t size_;
  const std::size_t element_;
  const std::size_t most_;             // elements of one part in one round
  std::vector<std::uint64_t> offers_;  // addresses of what this rank sends; 0: staged
  Count largest_staged_ = 0;
  bool is_any_read_ = false;
  std::vector<std::uint64_t> addresses_;  // of what each rank sends here
};

void check(const Operation& operation, int, int size) {
  const std::vector<Buffer>& inputs = operation.inputs;
  const DType dtype = inputs.empty() ? DType::UInt8 : inputs.front().dtype;
  check_list(operation, "input", inputs, size, dtype);
  check_list(operation, "output", operation.outputs, size, dtype);
  check_apart("all_to_all: output", operation.outputs);
}

Descriptor descriptor(const Operation& operation) {
  return {.op = Op::AllToAll, .dtype = operation.inputs.front().dtype};
}

void all_to_all(Arena& arena, const Ways& ways, const Operation& operation) {
  AllToAll(arena, ways, operation.outputs, operation.inputs).run();
}

}  // namespace

const Collective kAllToAll = {
    .op = Op::AllToAll,
    .name = "all_to_all",
    .is_reduction = false,
    .check = check,
    .descriptor = descriptor,
    .bytes = [](const Operation&) { return kUnknownBytes; },
    .run = all_to_all,
};

}  // namespace allhands
