// What a connection keeps of what it sent, copied or lent.
#include "allhands/transport/tcp/replay_buffer.hpp"

#include <array>
#include <cstddef>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "check.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kMost = 200'000;

// Made once: under a sanitizer random bytes are dear.
const Bytes& random_bytes() {
  static const Bytes bytes = [] {
    std::mt19937 random(1);
    Bytes made(2 * kMost);
    for (std::byte& each : made) each = static_cast<std::byte>(random());
    return made;
  }();
  return bytes;
}

// Arrays as a program sends them: those that are not lent any more are overwritten.
class Arrays {
 public:
  explicit Arrays(std::mt19937& random) : random_(random) {}

  const Bytes& make(std::size_t most) {
    const std::byte* const from = random_bytes().data() + random_() % kMost;
    return all_.emplace_back(from, from + random_() % most + 1);
  }
  void overwrite() {
    for (Bytes& bytes : all_) std::memset(bytes.data(), 0xee, bytes.size());
    all_.clear();
  }

 private:
  std::mt19937& random_;
  std::deque<Bytes> all_;
};

Bytes kept_from(const ReplayBuffer& buffer, std::uint64_t from) {
  Bytes found;
  std::array<iovec, 3> parts;
  while (from + found.size() < buffer.end()) {
    const std::size_t count = buffer.gather(from + found.size(), parts);
    CHECK(count != 0);
    for (const iovec& part : std::span(parts).first(count)) {
      const auto* const data = static_cast<const std::byte*>(part.iov_base);
      found.insert(found.end(), data, data + part.iov_len);
    }
  }
  return found;
}

// Against all that was ever written.
void test_what_is_kept_is_what_was_written(unsigned seed) {
  constexpr int kSteps = 400;
  std::mt19937 random(seed);
  Arrays arrays(random);
  ReplayBuffer buffer;
  Bytes written;
  for (int step = 0; step < kSteps; ++step) {
    const unsigned chance = random() % 8;
    if (chance < 4) {
      const Bytes& head = arrays.make(100);
      const Bytes& body = arrays.make(chance == 0 ? kMost : 5'000);
      buffer.reserve(head.size() + body.size(), 2);
      buffer.append(head);
      if (chance % 2 == 0)
        buffer.lend(body);
      else
        buffer.append(body);
      written.insert(written.end(), head.begin(), head.end());
      written.insert(written.end(), body.begin(), body.end());
    } else if (chance == 4) {
      buffer.keep_lent();
      CHECK(buffer.first_lent() == buffer.end());
      arrays.overwrite();
    } else if (chance == 5) {
      buffer.shrink();
    } else {
      const std::uint64_t to = buffer.begin() + random() % (buffer.size() + 1);
      buffer.drop(chance == 6 ? to : buffer.end());
      CHECK(buffer.begin() == (chance == 6 ? to : buffer.end()));
    }
    CHECK(buffer.end() == written.size());
    const std::uint64_t from = buffer.begin() + random() % (buffer.size() + 1);
    const Bytes expected(written.begin() + static_cast<std::ptrdiff_t>(from),
                         written.end());
    CHECK(kept_from(buffer, from) == expected);
  }
}

void test_the_first_lent_byte_is_known() {
  ReplayBuffer buffer;
  const Bytes head(40), body(70'000), next(30);
  buffer.reserve(head.size() + body.size() + next.size(), 3);
  CHECK(buffer.first_lent() == 0);
  buffer.append(head);
  CHECK(buffer.first_lent() == 40);
  buffer.lend(body);
  buffer.append(next);
  CHECK(buffer.first_lent() == 40);
  buffer.drop(1'000);  // within the body
  CHECK(buffer.first_lent() == 1'000);
  buffer.drop(70'040);
  CHECK(buffer.first_lent() == buffer.end() && buffer.size() == 30);
}

// The current block is full, and nothing of what it holds is kept any more.
void test_a_full_block_of_dropped_bytes_is_replaced() {
  ReplayBuffer buffer;
  const Bytes head(64 << 10, std::byte{1}), body(200'000, std::byte{2});
  buffer.reserve(head.size() + body.size(), 2);
  buffer.append(head);
  buffer.lend(body);
  buffer.drop(70'000);
  buffer.keep_lent();
  CHECK(kept_from(buffer, 70'000) == Bytes(buffer.size(), std::byte{2}));
  CHECK(buffer.end() == head.size() + body.size());
}

}  // namespace

int main() {
  for (unsigned seed = 1; seed <= 40; ++seed)
    test_what_is_kept_is_what_was_written(seed);
  test_the_first_lent_byte_is_known();
  test_a_full_block_of_dropped_bytes_is_replaced();
}
