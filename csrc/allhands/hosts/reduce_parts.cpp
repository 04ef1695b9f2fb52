#include "allhands/hosts/reduce_parts.hpp"

#include <algorithm>
#include <cstddef>
#include <deque>

#include "allhands/arena/rounds.hpp"
#include "allhands/hosts/messages.hpp"
#include "allhands/kernels/pack.hpp"
#include "allhands/kernels/reduce.hpp"

namespace allhands {
namespace {

// The pieces of all ranks that are received ahead, together; two of each rank at least.
constexpr std::size_t kAheadBytes = std::size_t{8} << 20;

// Receives what all ranks have for this rank piece by piece, and reduces each piece
// while the next ones come. A *slot* has room for one piece of each rank; that of this
// rank serves if its own part or the output is not contiguous.
class PartsReduction {
 public:
  PartsReduction(const Crossing& crossing, const std::vector<Buffer>& parts,
                 const Buffer& output, ReduceOp op, const std::vector<Factor>& factors)
      : size_(crossing.group.size()),
        self_(crossing.group.rank),
        parts_(parts),
        own_(parts[index(self_)]),
        output_(output),
        op_(op),
        factors_(factors),
        element_(size_of(output.dtype)),
        cut_{output.count, std::min(Messages::piece_of(output.dtype),
                                    std::max<std::size_t>(output.count, 1))},
        num_slots_(slots(cut_.most * element_)),
        memory_(crossing.memory.lend(num_slots_ * index(size_) * cut_.most * element_)),
        messages_(crossing) {}

  void run() {
    const std::size_t pieces = std::max<std::size_t>(cut_.rounds(), 1);
    for (std::size_t i = 0; i < std::min(num_slots_, pieces); ++i) receive(i);
    for (int step = 1; step < size_; ++step) {
      const int to = (self_ + step) % size_;
      messages_.send(parts_[index(to)], to);
    }
    for (std::size_t i = 0; i < pieces; ++i) {
      for (int step = 1; step < size_; ++step) {
        messages_.wait_for(coming_.front());
        coming_.pop_front();
      }
      reduce_piece(i);
      if (i + num_slots_ < pieces) receive(i + num_slots_);
    }
    messages_.wait();
  }

 private:
  std::size_t slots(std::size_t piece_bytes) const {
    const std::size_t at_once =
        std::max<std::size_t>(1, piece_bytes * index(std::max(size_ - 1, 1)));
    return std::clamp<std::size_t>(kAheadBytes / at_once, 2, Messages::kPiecesAhead);
  }

  std::byte* place(std::size_t i, int rank) const {
    const std::size_t slot = i % num_slots_;
    return memory_.data() + (slot * index(size_) + index(rank)) * cut_.most * element_;
  }

  void receive(std::size_t i) {
    for (int step = 1; step < size_; ++step) {
      const int from = (self_ + size_ - step) % size_;
      coming_.push_back(messages_.receive_piece(
          {place(i, from), output_.dtype, cut_.length(i), {}, 0}, from));
    }
  }

  void reduce_piece(std::size_t i) const {
    const std::size_t at = cut_.begin(i), count = cut_.length(i);
    std::vector<const void*> sources;
    for (int rank = 0; rank < size_; ++rank) sources.push_back(place(i, rank));
    if (own_.is_contiguous())
      sources[index(self_)] = own_.at_byte(at * element_);
    else
      pack(own_, at, count, place(i, self_));
    // The result may replace a source, as no source is needed afterwards.
    void* const result = output_.is_contiguous()
                             ? static_cast<void*>(output_.at_byte(at * element_))
                             : place(i, self_);
    reduce(output_.dtype, op_, result, sources.data(), size_, count, factors_.data());
    if (!output_.is_contiguous()) unpack(result, output_, at, count);
  }

  const int size_;
  const int self_;
  const std::vector<Buffer>& parts_;
  const Buffer& own_;
  const Buffer& output_;
  const ReduceOp op_;
  const std::vector<Factor>& factors_;
  const std::size_t element_;
  const Cut cut_;
  const std::size_t num_slots_;
  const KeptMemory::Loan memory_;  // must stay as long as messages may go there
  Messages messages_;
  std::deque<TransferPtr> coming_;
};

}  // namespace

void reduce_parts(const Crossing& crossing, const std::vector<Buffer>& parts,
                  const Buffer& output, ReduceOp op,
                  const std::vector<Factor>& factors) {
  PartsReduction(crossing, parts, output, op, factors).run();
}

}  // namespace allhands
