// Where the rings of messages are: one for each pair that uses one, within bounds.
#include "allhands/transport/shm/message_memory.hpp"

#include <algorithm>
#include <vector>

#include "allhands/arena/layout.hpp"
#include "allhands/engine/progress_engine.hpp"
#include "allhands/transport/link.hpp"
#include "allhands/transport/shm/shm_transport.hpp"
#include "ranks.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

constexpr std::size_t kControl = sizeof(Slices::Control) + sizeof(RingControl);

void test_a_segment_is_bounded() {
  for (int size = 1; size <= 512; ++size) {
    const std::size_t total = MessageMemory(size).total_bytes();
    CHECK(total + Layout(size).total_bytes() < 300'000'000);
    CHECK(size > 256 || total < 70'000'000);
  }
}

// Every pair gets one, in whatever order they come, and none overlap.
void test_every_pair_has_a_ring(int size) {
  const MessageMemory layout(size);
  const auto memory = SharedMemory::create(layout.total_bytes());
  std::byte* const base = memory->data();
  std::vector<RingPlace> places;
  for (int step = 0; step < size; ++step)
    for (int from = 0; from < size; ++from) {
      const int to = (from + step) % size;
      CHECK(layout.entry(base, from, to).load() == 0);
      places.push_back(layout.take_ring(base, from, to));
      CHECK(layout.doorbell(base, to).num_writers.load() ==
            static_cast<std::uint32_t>(step + 1));
      const RingPlace seen = layout.ring(base, from, to);
      CHECK(seen.ring == places.back().ring);
      CHECK(seen.capacity == places.back().capacity);
    }
  CHECK_THROWS(layout.take_ring(base, 0, 0), LinkError);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::byte* const end = places[i].slices + kControl + places[i].capacity;
    CHECK(places[i].ring == places[i].slices + sizeof(Slices::Control));
    CHECK(end ==
          (i + 1 < places.size() ? places[i + 1].slices : base + layout.total_bytes()));
    CHECK(places[i].capacity >= 256);
    // A dozen peers of each rank have enough for some small messages.
    if (i < 12 * static_cast<std::size_t>(size)) CHECK(places[i].capacity >= 2048);
    if (size <= 64) CHECK(places[i].capacity >= 16384);
  }
}

void test_a_list_of_rings_that_makes_no_sense() {
  constexpr int kSize = 4;
  const MessageMemory layout(kSize);
  const auto memory = SharedMemory::create(layout.total_bytes());
  std::byte* const base = memory->data();
  layout.take_ring(base, 0, 1);
  layout.take_ring(base, 2, 1);
  layout.entry(base, 0, 1) = 2;  // another pair's
  CHECK_THROWS(layout.ring(base, 0, 1), LinkError);
  for (const std::uint32_t number : {0u, 3u, 17u, 0xffffffffu}) {
    layout.entry(base, 0, 1) = number;
    CHECK_THROWS(layout.ring(base, 0, 1), LinkError);
  }
  layout.head(base).num_rings = 0;  // it would be taken twice
  CHECK_THROWS(layout.take_ring(base, 3, 1), LinkError);
  layout.head(base).num_rings = 16;
  CHECK_THROWS(layout.take_ring(base, 3, 2), LinkError);
}

// Where all large ones are taken: the smallest there are.
void test_messages_of_all_sizes_go_through_a_small_ring() {
  constexpr int kSize = 512;
  const MessageMemory layout(kSize);
  const auto memory = SharedMemory::create(layout.total_bytes());
  layout.head(memory->data()).num_rings = kSize * kSize - 2;
  const Tuning tuning = Tuning::for_ranks(kSize);
  run_ranks(2, [&](int rank) {
    auto transport = std::make_unique<ShmTransport>(memory, memory->data(),
                                                    membership(rank, kSize), tuning);
    CHECK(transport->link(1 - rank).max_record() == 56);
    ProgressEngine engine(std::move(transport), membership(rank, kSize), tuning);
    for (const std::size_t count : {0, 1, 6, 7, 100, 10'000, 1'000'000})
      for (const std::int64_t stride : {1, 2}) {
        std::vector<float> out(2 * count, static_cast<float>(rank)), in(2 * count, 7);
        const auto buffer = [&](std::vector<float>& data) {
          Buffer all = {data.data(), DType::Float32, count, {}, 0};
          const auto step = stride * static_cast<std::int64_t>(sizeof(float));
          if (stride != 1) all.dimensions = {{static_cast<std::int64_t>(count), step}};
          return all;
        };
        const TransferPtr received =
            engine.post_recv(buffer(in), 1 - rank, 0, soon().deadline);
        engine.send(buffer(out), 1 - rank, 0, soon());
        engine.wait(received, soon(), ProgressEngine::AtEnd::GiveUp);
        for (std::size_t i = 0; i < count; ++i)
          CHECK(in[i * static_cast<std::size_t>(stride)] ==
                static_cast<float>(1 - rank));
      }
    engine.flush(soon());
  });
}

}  // namespace

int main() {
  test_a_segment_is_bounded();
  for (const int size : {1, 2, 5, 64, 65, 130, 300}) test_every_pair_has_a_ring(size);
  test_a_list_of_rings_that_makes_no_sense();
  test_messages_of_all_sizes_go_through_a_small_ring();
}
