// Slices that two threads take from both ends.
#include "allhands/transport/shm/slices.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "allhands/host/process.hpp"
#include "allhands/host/tuning.hpp"
#include "allhands/transport/link.hpp"
#include "allhands/transport/shm/shm_single_copy.hpp"
#include "allhands/transport/shm/slicing.hpp"
#include "check.hpp"

using namespace allhands;

namespace {

// One memory, and what each side makes of it.
struct Both {
  std::unique_ptr<Slices::Control> control = std::make_unique<Slices::Control>();
  Slices receiver{reinterpret_cast<std::byte*>(control.get())};
  Slices sender{reinterpret_cast<std::byte*>(control.get())};
};

void test_each_is_taken_once() {
  Both both;
  for (std::uint32_t number = 1; number <= 300; ++number) {
    const std::uint32_t count = number % 40 + 1;
    std::vector<std::atomic<int>> taken(count);
    both.receiver.open(number, count);
    std::thread sender([&] {
      while (const auto i = both.sender.take_last(number, count)) {
        ++taken[*i];
        both.sender.put_back(number, true);
      }
    });
    while (const auto i = both.receiver.take_first()) ++taken[*i];
    CHECK(!both.receiver.has_untaken());
    while (!both.receiver.is_complete()) std::this_thread::yield();
    CHECK(!both.receiver.failed());
    for (const auto& times : taken) CHECK(times == 1);
    sender.join();
  }
}

void test_either_side_does_all_of_it_alone() {
  Both both;
  both.receiver.open(1, 3);
  for (std::uint32_t i = 0; i < 3; ++i) CHECK(both.receiver.take_first() == i);
  CHECK(both.receiver.is_complete());
  both.receiver.open(2, 3);
  for (std::uint32_t i = 3; i-- > 0;) {
    CHECK(both.sender.take_last(2, 3) == i);
    CHECK(both.receiver.is_sender_busy());
    both.sender.put_back(2, true);
  }
  CHECK(!both.receiver.take_first());
  CHECK(both.receiver.is_complete());
}

void test_a_late_sender_changes_nothing() {
  Both both;
  both.receiver.open(1, 4);
  CHECK(both.sender.take_last(1, 4) == 3u);
  both.receiver.close();
  CHECK(both.receiver.is_sender_busy());
  CHECK(!both.sender.take_last(1, 4));
  both.receiver.open(2, 4);  // it was not waited for
  both.sender.put_back(1, true);
  CHECK(!both.sender.take_last(1, 4));
  CHECK(!both.receiver.is_sender_busy());
  for (std::uint32_t i = 0; i < 4; ++i) CHECK(both.receiver.take_first() == i);
  CHECK(both.receiver.is_complete());
}

void test_the_slice_that_could_not_be_written_is_known() {
  Both both;
  both.receiver.open(1, Slices::kMost);
  CHECK(both.sender.take_last(1, Slices::kMost) == Slices::kMost - 1);
  both.sender.put_back(1, true);
  CHECK(both.sender.take_last(1, Slices::kMost) == Slices::kMost - 2);
  both.sender.put_back(1, false);
  std::uint32_t num_left = 0;
  while (both.receiver.take_first()) ++num_left;
  CHECK(num_left == Slices::kMost - 2);
  CHECK(both.receiver.is_complete());
  CHECK(both.receiver.failed() == Slices::kMost - 2);
}

// Only the receiver changes how many it has taken.
void test_a_word_that_the_receiver_did_not_leave_so() {
  constexpr std::uint64_t kHigh = 1 << 16;
  for (const std::uint64_t other : {0 * kHigh, 2 * kHigh, 3 * kHigh}) {
    Both both;
    both.receiver.open(1, 3);
    CHECK(both.receiver.take_first() == 0u);
    both.control->taken = std::uint64_t{1} << 32 | other;
    CHECK_THROWS(both.receiver.is_complete(), LinkError);
    CHECK_THROWS(both.receiver.take_first(), LinkError);
  }
}

void test_withdrawals_are_counted() {
  Both both;
  CHECK(both.receiver.withdrawn() == 0);
  both.sender.withdraw();
  both.receiver.open(1, 2);
  CHECK(both.receiver.withdrawn() == 1);
}

// A receiver that has given up while its sender has a slice in hand.
struct GivenUp : Both {
  GivenUp() {
    receiver.open(1, 2);
    CHECK(sender.take_last(1, 2));
    receiver.close();
  }
};

void test_a_sender_that_lives_is_waited_for() {
  GivenUp both;
  int asked = 0;
  both.receiver.wait_for_sender([&] {
    if (++asked == 3) both.sender.put_back(1, true);
    return true;
  });
  CHECK(asked == 3);
  CHECK(!both.receiver.is_sender_busy());
}

// A process is found without memory before it is found dead.
void test_a_sender_that_is_dying_is_not_waited_for_long() {
  GivenUp both;
  int asked = 0;
  both.receiver.wait_for_sender([&] { return ++asked < 3; });
  CHECK(asked == 3);
  CHECK(both.receiver.is_sender_busy());
}

// The receiver's array is its owner's again only then.
void test_a_receiver_has_ended_once_the_slice_in_hand_is_put_back() {
  Slices::Control control;
  auto* const memory = reinterpret_cast<std::byte*>(&control);
  const Tuning tuning = Tuning::for_ranks(2);
  const ProcessIdentity self = this_process();
  ShmReceiver receiver(self, tuning);
  receiver.open(Slices(memory));
  std::vector<float> data(1'000'000);
  const Buffer buffer = {data.data(), DType::Float32, data.size(), {}, 0};
  receiver.begin(1, buffer, 1);
  Slices sender(memory);
  CHECK(sender.take_last(1, Slicing(buffer.num_bytes(), tuning).count()));
  std::atomic<bool> ends = false, is_put_back = false;
  std::thread other([&] {
    while (!ends) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    is_put_back = true;
    sender.put_back(1, true);
  });
  const auto start = std::chrono::steady_clock::now();
  ends = true;
  receiver.end();
  // It waits for a second at most.
  CHECK(is_put_back ||
        std::chrono::steady_clock::now() - start >= std::chrono::seconds(1));
  other.join();
}

}  // namespace

int main() {
  test_each_is_taken_once();
  test_either_side_does_all_of_it_alone();
  test_a_late_sender_changes_nothing();
  test_the_slice_that_could_not_be_written_is_known();
  test_a_word_that_the_receiver_did_not_leave_so();
  test_withdrawals_are_counted();
  test_a_sender_that_lives_is_waited_for();
  test_a_sender_that_is_dying_is_not_waited_for_long();
  test_a_receiver_has_ended_once_the_slice_in_hand_is_put_back();
}
