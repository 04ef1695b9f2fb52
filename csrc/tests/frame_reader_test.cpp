// Frames as they come over a socket, in pieces.
#include "allhands/transport/tcp/frame_reader.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "allhands/base/fd.hpp"
#include "check.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

// A sink for what nobody wants: its group has been left.
class Nobody final : public FrameSink {
 public:
  std::shared_ptr<Channel> on_head(const FrameHead&) override {
    ++num_heads;
    return nullptr;
  }
  int num_heads = 0;
};

// A reader of what is put into `there`.
struct Reading {
  Reading() : Reading(connected()) {}

  void put(std::span<const std::byte> bytes) const {
    CHECK(::write(there.get(), bytes.data(), bytes.size()) ==
          static_cast<ssize_t>(bytes.size()));
  }
  bool read() { return reader.read(wire); }

  Fd there;
  Wire wire;
  Nobody sink;
  FrameReader reader{sink};

 private:
  using Ends = std::array<int, 2>;
  explicit Reading(const Ends& ends) : there(ends[0]), wire(UnforkedFd(Fd(ends[1]))) {}
  static Ends connected() {
    Ends ends;
    CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) == 0);
    return ends;
  }
};

// Wherever it is cut in two.
void test_a_frame_that_nobody_wants_is_skipped() {
  constexpr std::uint32_t kBody = 40;
  for (std::size_t cut = 1; cut < sizeof(FrameHead) + kBody; ++cut) {
    Reading reading;
    std::array<std::byte, sizeof(FrameHead) + kBody> frame = {};
    const FrameHead head = {kBody, FrameKind::Record, 5, 1, 0, 0, 0};
    std::memcpy(frame.data(), &head, sizeof(head));
    reading.put(std::span(frame).first(cut));
    CHECK(reading.read());
    reading.put(std::span(frame).subspan(cut));
    CHECK(reading.read());
    const FrameHead next = {0, FrameKind::Room, 5, 2, 0, 0, 0};
    reading.put(std::as_bytes(std::span(&next, 1)));
    CHECK(reading.read() && reading.sink.num_heads == 2);
  }
}

// They are more than the reader has memory for at once.
void test_all_frames_that_have_come_are_read_at_once() {
  constexpr int kFrames = 2000;
  Reading reading;
  std::vector<FrameHead> frames;
  for (std::uint64_t number = 1; number <= kFrames; ++number)
    frames.push_back({0, FrameKind::Room, 5, number, 0, 0, 0});
  reading.put(std::as_bytes(std::span(frames)));
  CHECK(reading.read() && reading.sink.num_heads == kFrames);
  CHECK(!reading.read());
}

}  // namespace

int main() {
  test_a_frame_that_nobody_wants_is_skipped();
  test_all_frames_that_have_come_are_read_at_once();
}
