#include "allhands/hosts/local_bytes.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "allhands/arena/rounds.hpp"
#include "allhands/kernels/copy_bytes.hpp"

namespace allhands {
namespace {

// A slot begins with the number of bytes, which the first round stages.
constexpr std::size_t kHead = 64;

// Rounds in which some local ranks stage bytes, and tell all others how many.
class ByteRounds {
 public:
  explicit ByteRounds(Arena& arena)
      : arena_(arena), per_round_(arena.chunk_bytes() - kHead) {}

  // Returns the bytes of ranks [first, last) but this one, if this rank is a reader.
  std::vector<Bytes> run(BytesView mine, int first, int last, bool is_reader) {
    if (arena_.size() == 1) {
      arena_.enter([] {});
      return {Bytes()};
    }
    const bool stages = arena_.rank() >= first && arena_.rank() < last;
    arena_.enter([&] {
      if (!stages) return;
      const std::uint64_t count = mine.size();
      std::memcpy(arena_.slot(arena_.rank(), 0), &count, sizeof count);
      stage(mine, 0);
    });
    std::size_t rounds = 1;
    for (int rank = first; rank < last; ++rank)
      rounds = std::max(rounds, Cut{take_count(rank, is_reader), per_round_}.rounds());
    if (rounds > 1) arena_.use_chunks(rounds);
    for (std::size_t i = 0; i < rounds; ++i) {
      if (i > 0) {
        if (stages) stage(mine, i);
        arena_.meet();
      }
      for (int rank = first; is_reader && rank < last; ++rank)
        collect(rank, i, all_[static_cast<std::size_t>(rank - first)]);
    }
    return std::move(all_);
  }

 private:
  std::byte* staged(int rank, std::size_t i) const {
    return arena_.slot(rank, i) + kHead;
  }

  void stage(BytesView mine, std::size_t i) {
    const Cut cut = {mine.size(), per_round_};
    if (cut.length(i) != 0)
      copy_bytes(staged(arena_.rank(), i), mine.data() + cut.begin(i), cut.length(i));
  }

  std::size_t take_count(int rank, bool is_reader) {
    std::uint64_t count;
    std::memcpy(&count, arena_.slot(rank, 0), sizeof count);
    if (count > kMostTold) throw arena_.nonsense_of(rank);
    if (is_reader) all_.emplace_back(rank == arena_.rank() ? 0 : count);
    return count;
  }

  void collect(int rank, std::size_t i, Bytes& bytes) const {
    const Cut cut = {bytes.size(), per_round_};
    if (cut.length(i) != 0)
      copy_bytes(bytes.data() + cut.begin(i), staged(rank, i), cut.length(i));
  }

  Arena& arena_;
  const std::size_t per_round_;
  std::vector<Bytes> all_;  // what this rank reads
};

}  // namespace

std::vector<Bytes> gather_bytes(Arena& arena, BytesView mine, int root) {
  return ByteRounds(arena).run(mine, 0, arena.size(), arena.rank() == root);
}

Bytes broadcast_bytes(Arena& arena, BytesView of_root, int root) {
  return std::move(ByteRounds(arena).run(of_root, root, root + 1, true).front());
}

}  // namespace allhands
