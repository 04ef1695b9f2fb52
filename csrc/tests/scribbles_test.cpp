// What a rank finds in shared memory may be anything, where another has written over
// it: that is an error, and no crash.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "allhands/arena/cooperative_copy.hpp"
#include "allhands/arena/peer_arrays.hpp"
#include "allhands/engine/progress_engine.hpp"
#include "allhands/transport/shm/message_memory.hpp"
#include "allhands/transport/shm/shm_transport.hpp"
#include "check.hpp"
#include "collectives.hpp"
#include "ranks.hpp"

namespace allhands::testing {
namespace {

// A group of two in memory that the test can write to.
struct Group {
  Group() : memory(SharedMemory::create(layout.total_bytes())) {
    Arena::prepare(*memory, 2, Tuning::for_ranks(2));
  }
  Header& header() { return layout.header(memory->data()); }
  RankControl& control(int rank) { return layout.control(memory->data(), rank); }

  Layout layout{2};
  std::shared_ptr<SharedMemory> memory;
};

void test_a_failure_record_without_an_end() {
  Group group;
  Arena arena(group.memory, membership(0, 2));
  SharedFailure& record = group.header().failure;
  std::memset(record.text, 'x', sizeof(record.text));
  record.kind = static_cast<ErrorKind>(4711);
  record.reporter = -5;
  std::memset(record.ranks, 0xee, sizeof(record.ranks));
  std::memset(record.cause, 'y', sizeof(record.cause));
  record.cause_rank = 1;
  record.state = SharedFailure::kComplete;
  const Error error = error_of([&] { barrier(arena, soon()); });
  CHECK(error.kind() == ErrorKind::Backend);
  CHECK(error.ranks() == std::vector<int>{1});
  CHECK(std::strlen(error.what()) < 2 * SharedFailure::kMaxText);
  CHECK(error.cause() != nullptr);
  CHECK(error.cause()->text.size() == RemoteException::kMaxBytes);
  record.cause_rank = 2;
  CHECK(error_of([&] { barrier(arena, soon()); }).cause() == nullptr);
}

// Who noticed it, too, leaves only once it is told, or the teller died over that.
void test_a_failure_that_another_tells() {
  Group group;
  Arena arena(group.memory, membership(0, 2));
  SharedFailure& record = group.header().failure;
  const Error seen(ErrorKind::RankFailed, "rank 1 died", {1});
  record.state = SharedFailure::kWriting;
  std::atomic<bool> begins = false;
  std::thread teller([&] {
    while (!begins) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    record.state = SharedFailure::kComplete;
  });
  begins = true;
  arena.fail(seen);
  CHECK(arena.has_failed());
  teller.join();
  record.state = SharedFailure::kWriting;
  arena.fail(seen);
  CHECK(!arena.has_failed());
}

// Who has read another's array relies on what it read only once it knows.
void test_a_failure_that_is_told_while_a_rank_parts_from_its_peers() {
  Group group;
  Arena arena(group.memory, membership(0, 2));
  SharedFailure& record = group.header().failure;
  record.state = SharedFailure::kWriting;
  std::thread teller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // it has no CPU
    std::strcpy(record.text, "the reason");
    record.reporter = 1;
    record.kind = ErrorKind::Backend;
    record.state = SharedFailure::kComplete;
  });
  const Error error = error_of([&] { arena.part_from_peers(); });
  CHECK(has(error, "the reason"));
  teller.join();
}

void test_a_descriptor_of_nothing_known() {
  Group group;
  Arena arena(group.memory, membership(0, 2));
  std::memset(static_cast<void*>(&group.control(1).lines[1].descriptor), 0xee,
              sizeof(Descriptor));
  group.control(1).reads_peers = 7;
  // The others' clocks are ahead, as far as the first operation goes.
  group.control(1).lines[1].clock = 3;
  const Error error = error_of([&] { barrier(arena, soon()); });
  CHECK(error.kind() == ErrorKind::Mismatch);
}

void test_a_tuning_out_of_bounds() {
  Group group;
  group.header().tuning.slice_bytes = 0;
  const Error error = error_of([&] { Arena arena(group.memory, membership(0, 2)); });
  CHECK(error.kind() == ErrorKind::Backend);
}

// Ranks that wait awake look where the others are.
void test_a_seat_on_no_cpu() {
  Group group;
  Tuning& tuning = group.header().tuning;
  tuning.yields_per_look = 1;
  group.control(1).seat = std::numeric_limits<std::int32_t>::max();
  Arena arena(group.memory, membership(0, 2));
  const Error error =
      error_of([&] { barrier(arena, within(std::chrono::milliseconds(50))); });
  CHECK(error.kind() == ErrorKind::Timeout);
}

// The engine ends, and its group learns why.
void test_a_ring_of_messages_that_makes_no_sense() {
  const Tuning tuning = Tuning::for_ranks(2);
  const auto memory = SharedMemory::create(ShmTransport::memory_bytes(2));
  std::optional<Error> told;
  ProgressEngine engine(
      std::make_unique<ShmTransport>(memory, memory->data(), membership(1, 2), tuning),
      membership(1, 2), tuning, {.fail = [&](const Error& error) { told = error; }});
  std::vector<float> data(1);
  const auto received = engine.post_recv(buffer_of(data), 0, 0, soon().deadline);
  const RingPlace ring = MessageMemory(2).take_ring(memory->data(), 0, 1);
  std::memset(ring.ring, 0xee, offsetof(RingControl, owner));
  const Error error =
      error_of([&] { engine.wait(received, soon(), ProgressEngine::AtEnd::GiveUp); });
  CHECK(told && told->kind() == ErrorKind::Backend);
  CHECK(has(error, told->what()));
}

// What ranks say of their shares, while something writes over it. Another mapping, as
// of another process.
int count_told() {
  Group group;
  const auto other = SharedMemory::map(Fd(dup(group.memory->fd())));
  std::atomic<bool> is_over = false;
  std::thread scribbler([&] {
    // Behind the two words of a meeting, a place for each rank and the summary: count
    // and address of the share for each rank.
    constexpr std::size_t kSecondCount = 2 + 2 * 2 + 4 + 2;
    while (!is_over)
      for (const std::uint64_t chunk : {0, 1}) {
        auto* const words = reinterpret_cast<std::uint64_t*>(
            group.layout.slot(other->data(), 0, chunk));
        const std::atomic_ref<std::uint64_t> count(words[kSecondCount]);
        count = std::uint64_t{1} << 60;
        count = 2;
      }
  });
  std::atomic<int> num_told = 0;
  run_ranks(2, [&](int rank) {
    Arena arena(group.memory, membership(rank, 2));
    std::vector<float> data(4, 1), output(4);
    const Buffer from = buffer_of(data), to = buffer_of(output);
    for (int i = 0; i < 500; ++i) {
      try {
        all_to_all(arena, {to.slice(0, 2), to.slice(2, 2)},
                   {from.slice(0, 2), from.slice(2, 2)},
                   within(std::chrono::seconds(20)));
      } catch (const Error& error) {  // of this rank alone
        CHECK(error.kind() == ErrorKind::Backend);
        ++num_told;
      }
    }
  });
  is_over = true;
  scribbler.join();
  return num_told;
}

// On a busy machine the scribbler may have no CPU until all is over.
void test_counts_that_change_between_two_looks() {
  int num_told = 0;
  for (int turn = 0; turn < 100 && num_told == 0; ++turn) num_told = count_told();
  CHECK(num_told > 0);
}

// Nobody writes to another process but where that has said.
void test_an_address_to_write_to() {
  std::atomic<bool> has_thrown = false;
  run_arenas(2, [&](Arena& arena) {
    barrier(arena, soon());
    CHECK(arena.can_read_peers());
    std::vector<float> data(1'000'000, static_cast<float>(arena.rank())), bystander(1);
    const Buffer buffer = buffer_of(data);
    arena.begin(2, {.op = Op::Broadcast, .root = 0, .count = buffer.count}, soon());
    CooperativeReceives receives(arena);
    if (arena.rank() == 1) {
      receives.open(0, buffer);
      arena.handover(0).address = reinterpret_cast<std::uint64_t>(bystander.data());
    }
    const auto peers =
        PeerArrays::meet(arena, Ways().add(Way::Cooperative), std::span(&buffer, 1));
    CHECK(peers);
    if (arena.rank() == 0) {
      const Error error = error_of([&] { cooperative_send(arena, 1, buffer); });
      CHECK(error.kind() == ErrorKind::Backend);
      arena.fail(error);
      has_thrown = true;
    } else {
      while (!has_thrown) std::this_thread::yield();
      CHECK(error_of([&] { receives.complete(*peers); }).kind() == ErrorKind::Backend);
    }
    CHECK(bystander[0] == 0);
  });
}

// A place of an array beyond the shared array that it is said to be in.
void test_an_offset_out_of_the_shared_array() {
  constexpr std::size_t kCount = 100'000;
  Group group;
  run_ranks(2, [&](int rank) {
    Arena arena(group.memory, membership(rank, 2));
    const auto shared = std::make_shared<std::vector<float>>(2 * kCount);
    auto* base = reinterpret_cast<std::byte*>(shared->data());
    arena.shared_arrays()->mark_used();
    arena.shared_arrays()->add(
        {1, base, kCount * sizeof(float), kCount * sizeof(float), rank}, {});
    const Buffer mine = {shared->data() + kCount * static_cast<std::size_t>(rank),
                         DType::Float32,
                         kCount,
                         {},
                         0};
    const Descriptor descriptor = {.op = Op::Broadcast, .root = 0, .count = kCount};
    arena.begin(1, descriptor, soon());
    const auto peers =
        PeerArrays::meet(arena, Ways().add(Way::Mapped), std::span(&mine, 1));
    CHECK(peers);
    // Two words after the two of what is said of all: the address and the offset.
    reinterpret_cast<std::uint64_t*>(arena.slot(rank, 0))[3] = std::uint64_t{1} << 40;
    arena.wait_all(arena.publish());
    const Error error = error_of([&] { (void)peers->at(1 - rank, 0, 0, 4); });
    CHECK(error.kind() == ErrorKind::Backend);
  });
}

}  // namespace
}  // namespace allhands::testing

int main() {
  using namespace allhands::testing;
  test_a_failure_record_without_an_end();
  test_a_failure_that_another_tells();
  test_a_failure_that_is_told_while_a_rank_parts_from_its_peers();
  test_a_descriptor_of_nothing_known();
  test_a_tuning_out_of_bounds();
  test_a_seat_on_no_cpu();
  test_a_ring_of_messages_that_makes_no_sense();
  test_counts_that_change_between_two_looks();
  test_an_address_to_write_to();
  test_an_offset_out_of_the_shared_array();
}
