// SHA-256 (FIPS 180-4) and HMAC-SHA256 (RFC 2104), by which two processes of a job
// prove to each other that they know its secret. The inputs are small, so the code is
// written to be easy to read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace allhands {

using Digest = std::array<std::uint8_t, 32>;

class Sha256 {
 public:
  void update(std::string_view bytes);
  // Ends the message; the object cannot be used afterwards.
  Digest finish();

 private:
  void compress(const std::uint8_t* block);

  static constexpr std::size_t kBlockBytes = 64;
  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372,
                                         0xa54ff53a, 0x510e527f, 0x9b05688c,
                                         0x1f83d9ab, 0x5be0cd19};
  std::array<std::uint8_t, kBlockBytes> block_ = {};
  std::uint64_t num_bytes_ = 0;
};

Digest sha256(std::string_view bytes);
Digest hmac_sha256(std::string_view key, std::string_view message);

// Takes the same time wherever the first difference is.
bool is_equal_constant_time(std::string_view a, std::string_view b);

inline std::string_view as_view(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace allhands
