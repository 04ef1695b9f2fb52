// The opening of a store connection: both sides prove that they know the job's secret
// before any data passes. This handles bytes only, no sockets.
//
//   client -> server   Hello: magic, version, flags, (zero) identity, nonce    64 bytes
//   server -> client   Hello: magic, version, flags, its identity, nonce       64 bytes
//   client -> server   HMAC-SHA256(secret, "client" + both hellos)             32 bytes
//   server -> client   u32 verdict, HMAC-SHA256(secret, "server" + both)       36 bytes
//
// Nonces are fresh, so a recorded proof is worthless, and the labels keep a proof from
// being sent back. The client proves itself first, so a stranger learns only a nonce.
// Without a secret the same bytes pass, with an empty secret. The data that follows is
// neither encrypted nor signed: the handshake keeps strangers out, but does not hide
// data from somebody who can read the network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace allhands::store {

// The first message of either side: version, identity, nonce.
struct Hello {
  static constexpr std::size_t kBytes = 64;
  static constexpr std::size_t kIdentityBytes = 16;
  static constexpr std::size_t kNonceBytes = 32;

  std::uint32_t version = 0;
  bool has_secret = false;
  std::string identity;  // the server's; tells a restarted server from the old one
  std::string nonce;

  // Makes a hello of this process, with a fresh nonce.
  static Hello make(std::string_view secret, std::string_view identity);
  std::string encode() const;
  // Returns false if the bytes are no hello of a store. The caller must check the
  // version.
  static bool decode(std::string_view bytes, Hello& hello);
};

inline constexpr std::size_t kProofBytes = 32;

inline constexpr std::size_t kVerdictBytes = 4 + kProofBytes;
inline constexpr std::uint32_t kAccepted = 1;  // the only verdict that does not refuse

// The side that proves that it knows the secret.
enum class Side { Client, Server };

// The bytes that `side` must send to prove that it knows the secret.
std::string prove(Side side, std::string_view secret, std::string_view client_hello,
                  std::string_view server_hello);

}  // namespace allhands::store
