// The opening of a store connection: both sides prove that they know the job's secret
// before a byte of data passes. Bytes only, no sockets.
//
//   client -> server   Hello: magic, version, flags, (zero) identity, nonce     64
//   bytes server -> client   Hello: magic, version, flags, server's identity, nonce 64
//   bytes client -> server   HMAC-SHA256(secret, "client" + both hellos) 32 bytes
//   server -> client   u32 verdict, HMAC-SHA256(secret, "server" + both hellos) 36
//   bytes
//
// Nonces are fresh, so a recorded proof is worth nothing; the labels keep a proof from
// being sent back. The client proves first: a stranger learns a nonce, no more. Without
// a secret the same bytes pass, with the empty one. What follows is neither encrypted
// nor signed: the handshake keeps strangers out, it does not hide data from who can
// read the network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace allhands::store {

// What either side says first: version, identity, nonce.
struct Hello {
  static constexpr std::size_t kBytes = 64;
  static constexpr std::size_t kIdentityBytes = 16;
  static constexpr std::size_t kNonceBytes = 32;

  std::uint32_t version = 0;
  bool has_secret = false;
  std::string identity;  // of the server; tells a restarted one from the old one
  std::string nonce;

  // A hello of this process, with a fresh nonce.
  static Hello make(std::string_view secret, std::string_view identity);
  std::string encode() const;
  // False where the bytes are no hello of a store; the version is the caller's to
  // check.
  static bool decode(std::string_view bytes, Hello& hello);
};

inline constexpr std::size_t kProofBytes = 32;

inline constexpr std::size_t kVerdictBytes = 4 + kProofBytes;
inline constexpr std::uint32_t kAccepted = 1;  // a verdict; all others refuse

// Who proves that it knows the secret.
enum class Side { Client, Server };

// What `side` has to send to prove that it knows the secret.
std::string prove(Side side, std::string_view secret, std::string_view client_hello,
                  std::string_view server_hello);

}  // namespace allhands::store
