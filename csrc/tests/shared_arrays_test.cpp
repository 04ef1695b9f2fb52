// Collectives on shared arrays: ranks as threads over one mapping of the arrays, so
// that the thread sanitizer sees what one rank writes and another reads.
#include <algorithm>
#include <cstring>

#include "allhands/arena/peer_arrays.hpp"
#include "ranks.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

constexpr std::uint64_t kNumber = 7;
constexpr std::size_t kFloats = 400000;  // of a rank's part

// From the least size on; with cache lines that parts share.
const std::vector<std::size_t> kCounts = {4096, 4097, 5000, 65537, 300001};

// A rank's own part of the shared array of a group.
struct Part {
  Arena& arena;
  float* floats;

  Buffer buffer(std::size_t at, std::size_t count) const {
    return {floats + at, DType::Float32, count, {}, 0};
  }
  // One after the other for all ranks, of `count` each.
  std::vector<Buffer> pieces(std::size_t at, std::size_t count) const {
    std::vector<Buffer> list;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(arena.size()); ++rank)
      list.push_back(buffer(at + rank * count, count));
    return list;
  }
  void check(std::size_t at, std::size_t count, int rank) const {
    for (std::size_t i = 0; i < count; ++i) CHECK(floats[at + i] == value(rank, i));
  }
  void fill(std::size_t at, std::size_t count) const {
    for (std::size_t i = 0; i < count; ++i) floats[at + i] = value(arena.rank(), i);
  }
};

template <class Body>
void run_sharing(int size, Body body) {
  const auto memory =
      SharedMemory::create(static_cast<std::size_t>(size) * kFloats * 4);
  Tuning tuning = Tuning::for_ranks(size);
  tuning.chunk_bytes = 64 << 10;  // most of what is staged here is nothing
  run_arenas(size, tuning, [&](Arena& arena) {
    const SharedRegion region = {kNumber, memory->data(), kFloats * 4, kFloats * 4,
                                 arena.rank()};
    arena.shared_arrays()->mark_used();
    arena.shared_arrays()->add(region, memory);
    body(Part{arena, reinterpret_cast<float*>(region.part(arena.rank()))});
  });
}

void test_lookup() {
  std::vector<std::byte> memory(3000);
  SharedArrays arrays;
  CHECK(!arrays.is_used());
  const auto number_at = [&](std::size_t at, std::size_t bytes) {
    const auto region = arrays.find({memory.data() + at, DType::UInt8, bytes, {}, 0});
    return region ? region->number : 0;
  };
  CHECK(number_at(0, 1) == 0);
  const auto owner = SharedMemory::create(1);
  arrays.add({2, memory.data() + 2000, 500, 400, 1}, owner);
  arrays.add({1, memory.data(), 500, 400, 0}, owner);
  CHECK(number_at(0, 400) == 1 && number_at(399, 1) == 1);
  CHECK(number_at(0, 401) == 0 && number_at(400, 1) == 0);
  CHECK(number_at(500, 1) == 0);  // another rank's part
  CHECK(number_at(2500, 400) == 2 && number_at(2000, 1) == 0);
  CHECK(number_at(1999, 1) == 0 && number_at(2900, 1) == 0);
  CHECK(!arrays.find({memory.data(), DType::UInt8, 2, {{2, 2}}, 0}));
  arrays.remove(2);
  CHECK(number_at(2500, 1) == 0 && number_at(0, 1) == 1);
}

void test_all_reduce(int size) {
  run_sharing(size, [&](const Part& part) {
    for (const std::size_t count : kCounts) {
      const std::size_t at = 3 * static_cast<std::size_t>(part.arena.rank());
      part.fill(at, count);
      part.floats[at + count] = -1;
      const Buffer buffer = part.buffer(at, count);
      all_reduce(part.arena, buffer, buffer, ReduceOp::Sum, 1, soon());
      for (std::size_t i = 0; i < count; ++i) {
        float expected = 0;
        for (int rank = 0; rank < size; ++rank) expected += value(rank, i);
        CHECK(part.floats[at + i] == expected);
      }
      CHECK(part.floats[at + count] == -1);
    }
    CHECK(is_staging_untouched(part.arena));
  });
}

void test_all_reduce_into_another_array(int size) {
  run_sharing(size, [&](const Part& part) {
    const std::size_t count = 100001;
    part.fill(0, count);
    all_reduce(part.arena, part.buffer(200000, count), part.buffer(0, count),
               ReduceOp::PremulSum, part.arena.rank(), soon());
    for (std::size_t i = 0; i < count; ++i) {
      float expected = 0;
      for (int rank = 0; rank < size; ++rank)
        expected += value(rank, i) * static_cast<float>(rank);
      CHECK(part.floats[200000 + i] == expected);
      CHECK(part.floats[i] == value(part.arena.rank(), i));
    }
  });
}

void test_reduce(int size) {
  run_sharing(size, [&](const Part& part) {
    for (const std::size_t count : kCounts) {
      const int rank = part.arena.rank(), root = size - 1;
      part.fill(5, count);
      reduce(part.arena, part.buffer(5, count), root, ReduceOp::Min, 1, soon());
      for (std::size_t i = 0; i < count; ++i)
        CHECK(part.floats[5 + i] == value(rank == root ? 0 : rank, i));
    }
    CHECK(is_staging_untouched(part.arena));
  });
}

void test_broadcast(int size) {
  run_sharing(size, [&](const Part& part) {
    for (const std::size_t count : kCounts) {
      const int root = size / 2;
      part.fill(0, count);
      part.floats[count] = -1;
      broadcast(part.arena, part.buffer(0, count), root, soon());
      part.check(0, count, root);
      CHECK(part.floats[count] == -1);
    }
    CHECK(is_staging_untouched(part.arena));
  });
}

// Of which every rank contributes its own, where the result will be.
void test_all_gather_and_gather_in_place(int size) {
  run_sharing(size, [&](const Part& part) {
    const int self = part.arena.rank(), root = size - 1;
    for (const std::size_t count : {std::size_t{4096}, std::size_t{30001}}) {
      const std::vector<Buffer> pieces = part.pieces(0, count);
      const Buffer& mine = pieces[static_cast<std::size_t>(self)];
      part.fill(count * static_cast<std::size_t>(self), count);
      all_gather(part.arena, pieces, mine, soon());
      for (int rank = 0; rank < size; ++rank)
        part.check(count * static_cast<std::size_t>(rank), count, rank);
      std::fill_n(part.floats, count * static_cast<std::size_t>(size), -1.0f);
      part.fill(count * static_cast<std::size_t>(self), count);
      gather(part.arena, self == root ? pieces : std::vector<Buffer>(), mine, root,
             soon());
      if (self != root) continue;
      for (int rank = 0; rank < size; ++rank)
        part.check(count * static_cast<std::size_t>(rank), count, rank);
    }
    CHECK(is_staging_untouched(part.arena));
  });
}

void test_reduce_scatter_in_place(int size) {
  run_sharing(size, [&](const Part& part) {
    const auto self = static_cast<std::size_t>(part.arena.rank());
    const std::size_t count = 20001, all = count * static_cast<std::size_t>(size);
    const std::vector<Buffer> pieces = part.pieces(0, count);
    part.fill(0, all);
    reduce_scatter(part.arena, pieces[self], pieces, ReduceOp::Max, 1, soon());
    for (std::size_t i = 0; i < all; ++i)
      CHECK(part.floats[i] == value(i / count == self ? size - 1 : int(self), i));
    CHECK(is_staging_untouched(part.arena));
  });
}

// Rank r sends value(r, i) at i of its array, from where its piece for the receiver is.
void test_all_to_all_and_scatter(int size) {
  run_sharing(size, [&](const Part& part) {
    const auto self = static_cast<std::size_t>(part.arena.rank());
    const std::size_t count = 20001, all = count * static_cast<std::size_t>(size);
    part.fill(0, all);
    std::vector<float> own(all + 1, -1);
    std::vector<Buffer> outputs;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(size); ++rank)
      outputs.push_back(buffer_of(own).slice(count * rank, count));
    all_to_all(part.arena, outputs, part.pieces(0, count), soon());
    for (std::size_t i = 0; i < all; ++i)
      CHECK(own[i] == value(static_cast<int>(i / count), count * self + i % count));
    CHECK(own[all] == -1);
    const int root = size / 2;
    const auto inputs =
        part.arena.rank() == root ? part.pieces(0, count) : std::vector<Buffer>();
    scatter(part.arena, outputs[0], inputs, root, soon());
    for (std::size_t i = 0; i < count; ++i)
      CHECK(own[i] == value(root, count * self + i));
  });
}

// What a peer would still read is written: such operations stage, and are right.
void test_outputs_over_inputs(int size) {
  run_sharing(size, [&](const Part& part) {
    const auto self = static_cast<std::size_t>(part.arena.rank());
    const std::size_t count = 5000, all = count * static_cast<std::size_t>(size);
    const std::vector<Buffer> pieces = part.pieces(0, count);
    for (int round = 0; round < 20; ++round) {
      part.fill(0, all);
      all_to_all(part.arena, pieces, pieces, soon());
      for (std::size_t i = 0; i < all; ++i)
        CHECK(part.floats[i] ==
              value(static_cast<int>(i / count), count * self + i % count));
      part.fill(0, all);
      reduce_scatter(part.arena, pieces[0], pieces, ReduceOp::Min, 1, soon());
      for (std::size_t i = 0; i < count; ++i)
        CHECK(part.floats[i] == value(0, count * self + i));
    }
  });
}

// One rank's array is private, or in another shared array: all stage.
void test_a_private_array_among_shared_ones(int size) {
  run_sharing(size, [&](const Part& part) {
    for (const int odd : {0, size - 1})
      for (const std::size_t count : kCounts) {
        part.fill(0, count);
        std::vector<float> own(part.floats, part.floats + count);
        const bool is_odd = part.arena.rank() == odd;
        const Buffer buffer = is_odd ? buffer_of(own) : part.buffer(0, count);
        all_reduce(part.arena, buffer, buffer, ReduceOp::Max, 1, soon());
        const auto* result = static_cast<const float*>(buffer.data);
        for (std::size_t i = 0; i < count; ++i) CHECK(result[i] == value(size - 1, i));
        broadcast(part.arena, buffer, odd, soon());
      }
  });
}

void test_mismatch_is_found_before_anything_is_written() {
  run_sharing(3, [&](const Part& part) {
    part.fill(0, 100000);
    const std::size_t count = part.arena.rank() == 1 ? 99999 : 100000;
    const Buffer buffer = part.buffer(0, count);
    const auto call = [&] {
      all_reduce(part.arena, buffer, buffer, ReduceOp::Sum, 1, soon());
    };
    CHECK(error_of(call).kind() == ErrorKind::Mismatch);
    for (std::size_t i = 0; i < count; ++i)
      CHECK(part.floats[i] == value(part.arena.rank(), i));
    barrier(part.arena, soon());
  });
}

// The slots of what was announced are free for what is staged next, and back.
void test_shared_and_private_in_turn(int size) {
  run_sharing(size, [&](const Part& part) {
    std::uint32_t random = 1;  // the same sequence on every rank
    std::vector<float> own(kFloats);
    for (int round = 0; round < 100; ++round) {
      random = random * 1664525 + 1013904223;
      const std::size_t small[] = {1, 4095};
      const std::size_t index = (random >> 8) % (kCounts.size() + 1);
      const std::size_t count = index < 2 ? small[index] : kCounts[index - 2];
      const bool is_shared = (random >> 16) % 3 != 0;
      const Buffer buffer =
          is_shared ? part.buffer(0, count) : buffer_of(own).slice(0, count);
      auto* floats = static_cast<float*>(buffer.data);
      for (std::size_t i = 0; i < count; ++i) floats[i] = value(part.arena.rank(), i);
      all_reduce(part.arena, buffer, buffer, ReduceOp::Max, 1, soon());
      CHECK(floats[0] == value(size - 1, 0));
      CHECK(floats[count - 1] == value(size - 1, count - 1));
    }
  });
}

}  // namespace

int main() {
  test_lookup();
  for (const int size : {1, 2, 3, 5, 8}) {
    test_all_reduce(size);
    test_all_reduce_into_another_array(size);
    test_reduce(size);
    test_broadcast(size);
    test_all_gather_and_gather_in_place(size);
    test_reduce_scatter_in_place(size);
    test_all_to_all_and_scatter(size);
    test_outputs_over_inputs(size);
    test_a_private_array_among_shared_ones(size);
    test_shared_and_private_in_turn(size);
  }
  test_mismatch_is_found_before_anything_is_written();
}
