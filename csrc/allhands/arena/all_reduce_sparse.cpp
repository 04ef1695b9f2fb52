// all_reduce of sparse arrays. The ranks tell each other which rows they have. Each
// rank lays out all rows that any rank has, with zeros for those that it lacks itself,
// and these arrays are reduced like any others. So the result has the same bits as that
// of the dense arrays.
#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "allhands/arena/checks.hpp"
#include "allhands/arena/collectives.hpp"
#include "allhands/arena/rounds.hpp"
#include "allhands/arena/sparse.hpp"
#include "allhands/base/error.hpp"
#include "allhands/kernels/copy_bytes.hpp"

namespace allhands {
namespace {

// Every rank's indices, on every rank. A slot begins with the number of indices, which
// the others do not know before. The first round stages this number and as many indices
// as fit.
class IndexExchange {
 public:
  IndexExchange(Arena& arena, const SparseArray& array)
      : arena_(arena),
        array_(array),
        per_round_((arena.chunk_bytes() - kHead) / sizeof(std::int64_t)) {}

  std::vector<Indices> run() {
    arena_.enter([this] {
      const std::uint64_t count = array_.indices.size();
      std::memcpy(arena_.slot(arena_.rank(), 0), &count, sizeof count);
      stage(0);
    });
    const std::size_t rounds = Cut{take_counts(), per_round_}.rounds();
    if (rounds > 1) arena_.use_chunks(rounds);
    collect(0);
    for (std::size_t i = 1; i < rounds; ++i) {
      stage(i);
      arena_.meet();
      collect(i);
    }
    for (int rank = 0; rank < arena_.size(); ++rank)
      if (!are_indices(of(rank), array_.num_rows)) throw arena_.nonsense_of(rank);
    return std::move(all_);
  }

 private:
  static constexpr std::size_t kHead = 64;  // bytes; a cache line

  Indices& of(int rank) { return all_[static_cast<std::size_t>(rank)]; }

  std::byte* staged(int rank, std::size_t i) const {
    return arena_.slot(rank, i) + kHead;
  }

  void stage(std::size_t i) {
    const Cut cut = {array_.indices.size(), per_round_};
    if (cut.length(i) != 0)
      copy_bytes(staged(arena_.rank(), i), array_.indices.data() + cut.begin(i),
                 cut.length(i) * sizeof(std::int64_t));
  }

  // Reads the ranks' counts; returns the largest.
  std::size_t take_counts() {
    std::size_t most = 0;
    for (int rank = 0; rank < arena_.size(); ++rank) {
      std::uint64_t count;
      std::memcpy(&count, arena_.slot(rank, 0), sizeof count);
      if (count > array_.num_rows) throw arena_.nonsense_of(rank);
      all_.emplace_back(count);
      most = std::max(most, all_.back().size());
    }
    return most;
  }

  void collect(std::size_t i) {
    for (int rank = 0; rank < arena_.size(); ++rank) {
      const Cut cut = {of(rank).size(), per_round_};
      if (cut.length(i) != 0)
        copy_bytes(of(rank).data() + cut.begin(i), staged(rank, i),
                   cut.length(i) * sizeof(std::int64_t));
    }
  }

  Arena& arena_;
  const SparseArray& array_;
  const std::size_t per_round_;  // indices
  std::vector<Indices> all_;     // by rank
};

void check(const Operation& operation, int, int) {
  const SparseArray& array = *operation.sparse;
  check_reduction(operation, array.values.dtype);
  check_count(operation, "values of the sparse array", array.values,
              array.indices.size() * array.width);
  if (!are_indices(array.indices, array.num_rows))
    throw Error(ErrorKind::Value,
                "all_reduce: the indices of a sparse array of " +
                    std::to_string(array.num_rows) +
                    " rows must lie within it, ascend, and be there once each");
}

Descriptor descriptor(const Operation& operation) {
  const SparseArray& array = *operation.sparse;
  return {.op = Op::AllReduceSparse,
          .dtype = array.values.dtype,
          .reduce_op = operation.reduce_op,
          .reduce_order = operation.reduce_order,
          .count = array.num_rows * array.width,
          .shares = array.width};
}

void all_reduce(Arena& arena, const Ways& ways, const Operation& operation) {
  SparseArray& array = *operation.sparse;
  try {
    array.all_indices = united(IndexExchange(arena, array).run());
    lay_out(array);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::Backend,
                arena.describe_call() + ": no memory for the rows of all ranks");
  }
  if (array.sums_bytes() == 0) return;
  arena.start_over();
  const Buffer sums = {.data = array.sums.get(),
                       .dtype = array.values.dtype,
                       .count = array.all_indices.size() * array.width,
                       .dimensions = {}};
  kAllReduce.run(arena, ways,
                 {.collective = &kAllReduce,
                  .reduce_op = operation.reduce_op,
                  .factor = operation.factor,
                  .output = sums,
                  .input = sums});
}

}  // namespace

const Collective kAllReduceSparse = {
    .op = Op::AllReduceSparse,
    .name = "all_reduce",
    .is_reduction = true,
    .check = check,
    .descriptor = descriptor,
    .bytes = [](const Operation&) { return kUnknownBytes; },
    .run = all_reduce,
};

}  // namespace allhands
