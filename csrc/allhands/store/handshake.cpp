#include "allhands/store/handshake.hpp"

#include "allhands/base/random.hpp"
#include "allhands/net/little_endian.hpp"
#include "allhands/net/sha256.hpp"
#include "allhands/store/protocol.hpp"

namespace allhands::store {
namespace {

// The line end stops a server of a text protocol.
constexpr std::string_view kMagic = "ahstore\n";
constexpr std::uint32_t kHasSecret = 1;

}  // namespace

Hello Hello::make(std::string_view secret, std::string_view identity) {
  Hello hello;
  hello.version = kProtocolVersion;
  hello.has_secret = !secret.empty();
  hello.identity = identity;
  hello.nonce = random_bytes(kNonceBytes);
  return hello;
}

std::string Hello::encode() const {
  std::string bytes(kMagic);
  append_little_endian(bytes, version);
  append_little_endian(bytes, has_secret ? kHasSecret : std::uint32_t{0});
  std::string padded = identity;
  padded.resize(kIdentityBytes, '\0');
  return bytes + padded + nonce;
}

bool Hello::decode(std::string_view bytes, Hello& hello) {
  if (bytes.size() != kBytes || bytes.substr(0, kMagic.size()) != kMagic) return false;
  hello.version = read_little_endian<std::uint32_t>(bytes.data() + 8);
  const auto flags = read_little_endian<std::uint32_t>(bytes.data() + 12);
  hello.has_secret = (flags & kHasSecret) != 0;
  hello.identity = bytes.substr(16, kIdentityBytes);
  hello.nonce = bytes.substr(32, kNonceBytes);
  return true;
}

std::string prove(Side side, std::string_view secret, std::string_view client_hello,
                  std::string_view server_hello) {
  std::string message(side == Side::Client ? "allhands store client"
                                           : "allhands store server");
  message.append(client_hello).append(server_hello);
  return std::string(as_view(hmac_sha256(secret, message)));
}

}  // namespace allhands::store
