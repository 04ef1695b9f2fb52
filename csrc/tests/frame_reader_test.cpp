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

void put(int fd, std::span<const std::byte> bytes) {
  CHECK(::write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
}

// Wherever it is cut in two.
void test_a_frame_that_nobody_wants_is_skipped() {
  constexpr std::uint32_t kBody = 40;
  for (std::size_t cut = 1; cut < sizeof(FrameHead) + kBody; ++cut) {
    int ends[2];
    CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    const Fd there(ends[0]);
    Wire wire{UnforkedFd(Fd(ends[1]))};
    Nobody sink;
    FrameReader reader(sink);
    std::array<std::byte, sizeof(FrameHead) + kBody> frame = {};
    const FrameHead head = {kBody, FrameKind::Record, 5, 1, 0, 0, 0};
    std::memcpy(frame.data(), &head, sizeof(head));
    put(there.get(), std::span(frame).first(cut));
    CHECK(reader.read(wire));
    put(there.get(), std::span(frame).subspan(cut));
    CHECK(reader.read(wire));
    const FrameHead next = {0, FrameKind::Room, 5, 2, 0, 0, 0};
    put(there.get(), std::as_bytes(std::span(&next, 1)));
    CHECK(reader.read(wire) && sink.num_heads == 2);
  }
}

// They are more than the reader has memory for at once.
void test_all_frames_that_have_come_are_read_at_once() {
  constexpr int kFrames = 2000;
  int ends[2];
  CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
  const Fd there(ends[0]);
  Wire wire{UnforkedFd(Fd(ends[1]))};
  Nobody sink;
  FrameReader reader(sink);
  std::vector<FrameHead> frames;
  for (std::uint64_t number = 1; number <= kFrames; ++number)
    frames.push_back({0, FrameKind::Room, 5, number, 0, 0, 0});
  put(there.get(), std::as_bytes(std::span(frames)));
  CHECK(reader.read(wire) && sink.num_heads == kFrames);
  CHECK(!reader.read(wire));
}

}  // namespace

int main() {
  test_a_frame_that_nobody_wants_is_skipped();
  test_all_frames_that_have_come_are_read_at_once();
}
