// Large arrays that go to one rank and are copied by both sides.
#include "allhands/arena/cooperative_copy.hpp"

#include <atomic>
#include <chrono>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "ranks.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

constexpr std::size_t kCount = 40'007;

Tuning reading(int size) {
  Tuning tuning = Tuning::for_ranks(size);
  tuning.read_bytes = tuning.read_broadcast_bytes = 4096;
  tuning.read_rooted_bytes = tuning.slice_bytes = 4096;
  return tuning;
}

std::vector<float> values(int rank, std::size_t turn) {
  std::vector<float> result(kCount);
  std::iota(result.begin(), result.end(), static_cast<float>(turn * 10) + rank);
  return result;
}

template <class Body>
void run_reading(int size, Body body) {
  run_reading_arenas(size, reading(size), body);
}

// Each rank is the root in turn, of one operation after the other.
void test_what_is_sent_arrives(int size) {
  run_reading(size, [&](Arena& arena) {
    for (std::size_t turn = 0; turn < 8; ++turn) {
      const int root = static_cast<int>(turn) % size;
      std::vector<float> mine = values(arena.rank(), turn);
      std::vector<std::vector<float>> all(
          arena.rank() == root ? static_cast<std::size_t>(size) : 0);
      std::vector<Buffer> outputs;
      for (std::vector<float>& array : all) {
        array.resize(2 * kCount);
        outputs.push_back({array.data(), DType::Float32, kCount, {}, 0});
        if (turn % 4 == 1 && outputs.size() % 2 == 0)  // some are strided
          outputs.back().dimensions = {{kCount, 2 * sizeof(float)}};
      }
      gather(arena, outputs, buffer_of(mine), root, soon());
      for (std::size_t rank = 0; rank < all.size(); ++rank) {
        const std::size_t step = outputs[rank].is_contiguous() ? 1 : 2;
        for (std::size_t i = 0; i < kCount; ++i)
          CHECK(all[rank][step * i] == static_cast<float>(turn * 10 + rank + i));
      }
      broadcast(arena, buffer_of(mine), root, soon());
      CHECK(mine == values(root, turn));
    }
  });
}

// What the root has for itself lies where it gets another's: it comes first.
void test_a_gather_into_the_roots_input() {
  run_reading(3, [](Arena& arena) {
    std::vector<float> mine = values(arena.rank(), 0);
    std::vector<float> first(kCount), second(kCount);
    std::vector<Buffer> outputs;
    if (arena.rank() == 1)
      outputs = {buffer_of(first), buffer_of(second), buffer_of(mine)};
    gather(arena, outputs, buffer_of(mine), 1, soon());
    if (arena.rank() != 1) return;
    CHECK(first == values(0, 0));
    CHECK(second == values(1, 0));
    CHECK(mine == values(2, 0));
  });
}

// The two sides of a broadcast from rank 0, step by step.
PeerArrays meet(Arena& arena, const Buffer& buffer, const Limits& limits,
                CooperativeReceives* receives) {
  arena.begin(
      arena.sequence() + 1,
      {.op = Op::Broadcast, .dtype = buffer.dtype, .root = 0, .count = buffer.count},
      limits);
  if (receives != nullptr) receives->open(0, buffer);
  auto peers =
      PeerArrays::meet(arena, Ways().add(Way::Cooperative), std::span(&buffer, 1));
  CHECK(peers);
  return *peers;
}

void test_a_sender_copies_all_for_a_receiver_that_is_late() {
  run_reading(2, [](Arena& arena) {
    std::vector<float> data = values(arena.rank(), 0);
    const Buffer buffer = buffer_of(data);
    if (arena.rank() == 0) {
      meet(arena, buffer, soon(), nullptr);
      cooperative_send(arena, 1, buffer);
      arena.wait(1, arena.publish());
    } else {
      CooperativeReceives receives(arena);
      const PeerArrays peers = meet(arena, buffer, soon(), &receives);
      arena.wait(0, arena.clock() + 1);
      CHECK(data == values(0, 0));
      receives.complete(peers);
      arena.publish();
    }
  });
}

void test_who_gives_up_waits_for_the_slice_in_hand() {
  std::atomic<bool> is_taken{false}, gives_up{false}, is_put_back{false};
  std::atomic<bool> is_over{false};
  run_reading(2, [&](Arena& arena) {
    std::vector<float> data = values(arena.rank(), 0);
    const Buffer buffer = buffer_of(data);
    const auto wait_for = [](const std::atomic<bool>& flag) {
      while (!flag) std::this_thread::yield();
    };
    if (arena.rank() == 0) {
      meet(arena, buffer, soon(), nullptr);
      Slices slices(reinterpret_cast<std::byte*>(&arena.handover(0).slices));
      const auto number = static_cast<std::uint32_t>(arena.sequence());
      const std::uint32_t count = (kCount * sizeof(float) + 4095) / 4096;
      CHECK(slices.take_last(number, count));
      is_taken = true;
      wait_for(gives_up);
      // Time enough for one that does not wait.
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      is_put_back = true;
      slices.put_back(number, true);
      wait_for(is_over);
      CHECK(!slices.take_last(number, count));
      return;
    }
    auto receives = std::make_optional<CooperativeReceives>(arena);
    meet(arena, buffer, soon(), &*receives);
    wait_for(is_taken);
    const auto start = std::chrono::steady_clock::now();
    gives_up = true;
    receives.reset();
    // It waits for a second at most.
    CHECK(is_put_back ||
          std::chrono::steady_clock::now() - start >= std::chrono::seconds(1));
    is_over = true;
  });
}

// It has published the end of its part, and its array may change while it is read.
void test_nothing_is_right_that_was_read_of_a_sender_that_gave_up() {
  std::atomic<bool> has_given_up{false};
  run_reading(2, [&](Arena& arena) {
    std::vector<float> data = values(arena.rank(), 0);
    const Buffer buffer = buffer_of(data);
    if (arena.rank() == 0) {
      meet(arena, buffer, soon(), nullptr);
      arena.publish();
      arena.fail(Error(ErrorKind::Timeout, "rank 0 waits no more"));
      has_given_up = true;
      return;
    }
    CooperativeReceives receives(arena);
    const PeerArrays peers = meet(arena, buffer, soon(), &receives);
    arena.wait(0, arena.clock() + 1);
    while (!has_given_up) std::this_thread::yield();
    const Error error = error_of([&] { arena.part_from_peers(); });
    CHECK(error.kind() == ErrorKind::Timeout);
  });
}

// A broadcast of more than the other rank expects: nobody copies anything.
void test_a_mismatch_leaves_arrays_alone() {
  run_reading(2, [](Arena& arena) {
    std::vector<float> data = values(arena.rank(), 0);
    Buffer buffer = buffer_of(data);
    buffer.count -= static_cast<std::size_t>(arena.rank());
    const Error error = error_of([&] { broadcast(arena, buffer, 0, soon()); });
    CHECK(error.kind() == ErrorKind::Mismatch);
    CHECK(data == values(arena.rank(), 0));
    broadcast(arena, buffer_of(data), 0, soon());
    CHECK(data == values(0, 0));
  });
}

}  // namespace

int main() {
  for (const int size : {2, 4}) test_what_is_sent_arrives(size);
  test_a_gather_into_the_roots_input();
  test_a_sender_copies_all_for_a_receiver_that_is_late();
  test_who_gives_up_waits_for_the_slice_in_hand();
  test_nothing_is_right_that_was_read_of_a_sender_that_gave_up();
  test_a_mismatch_leaves_arrays_alone();
}
