// A receiver that gives up while its sender has a slice in hand.
#include "allhands/engine/handover.hpp"

#include <unistd.h>

#include <array>
#include <memory>
#include <thread>

#include "check.hpp"

using namespace allhands;

namespace {

struct Given {
  Given() {
    const Buffer buffer{data.data(), DType::UInt8, data.size(), {}};
    inbound.begin(TransferPtr(new Transfer{false, buffer, 0, 0,
                                           Deadline::after(std::chrono::hours(1))}),
                  1, 0);
    CHECK(sender.take_last(1, Slicing(data.size(), tuning).count()));
    inbound.close();
  }

  std::array<std::byte, 1 << 16> data{};
  Tuning tuning;
  std::unique_ptr<Slices::Control> control = std::make_unique<Slices::Control>();
  Slices sender{reinterpret_cast<std::byte*>(control.get())};
  Inbound inbound{Slices(reinterpret_cast<std::byte*>(control.get())), getpid(),
                  tuning};
};

void test_a_sender_that_lives_is_waited_for() {
  Given given;
  int asked = 0;
  given.inbound.wait_for_sender([&] {
    if (++asked == 3) given.sender.put_back(1, true);
    return true;
  });
  CHECK(asked == 3);
  CHECK(!given.inbound.is_sender_busy());
}

// A process is found without memory before it is found dead.
void test_a_sender_that_is_dying_is_not_waited_for_long() {
  Given given;
  int asked = 0;
  given.inbound.wait_for_sender([&] { return ++asked < 3; });
  CHECK(asked == 3);
  CHECK(given.inbound.is_sender_busy());
}

}  // namespace

int main() {
  test_a_sender_that_lives_is_waited_for();
  test_a_sender_that_is_dying_is_not_waited_for_long();
}
