// TLS 1.3 over one socket, between two processes that know the same key. The key lets
// both sides authenticate each other, and a fresh Diffie-Hellman exchange keeps the
// data secret even from somebody who learns the key later (RFC 8446, psk_dhe_ke).
//
// Any threads may send, receive and ask at the same time; one lock makes them take
// turns.
// Nothing here waits for the network.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "allhands/net/openssl.hpp"

namespace allhands {

// One side of an encrypted connection. It uses the socket, but does not close it.
class TlsSession {
 public:
  // The two sides of TLS; which of them has dialled does not matter.
  enum class Role { Client, Server };
  enum class Progress { Going, Done, Failed };

  // Throws Backend if OpenSSL cannot be loaded or has no memory.
  TlsSession(int socket, Role role, std::string key);
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // Takes what has come of the handshake and answers it. Returns Going if more must
  // come.
  Progress shake();
  // Why the handshake has failed.
  const std::string& problem() const { return problem_; }

  // The following functions need a handshake that is Done. They return what sendmsg(2)
  // and readv(2) return for a non-blocking socket, counted in bytes of the caller's
  // data.

  // Takes as much as it can encrypt, once the socket has taken everything from before.
  // This call or flush() passes it on to the socket.
  ssize_t send(std::span<const iovec> parts);
  ssize_t receive(std::span<const iovec> parts);
  // Passes on what the socket did not take before. Returns false if the socket takes
  // the rest later.
  bool flush();
  // Whether there are bytes that were decrypted and not received yet.
  bool has_decrypted() const;
  // How many of the bytes that send() took the peer's kernel may lack; none if the
  // socket does not tell.
  std::optional<std::uint64_t> unconfirmed();

 private:
  // The end of one TLS record, in the bytes that send() took and in the bytes for the
  // socket.
  // A peer that has only a part of a record can read nothing of it.
  struct Record {
    std::uint64_t plain_end;
    std::uint64_t sealed_end;
  };
  struct Free {
    void operator()(ssl_ctx_st* context) const;
    void operator()(ssl_st* session) const;
  };

  bool seal(std::span<const std::byte> plain);
  std::span<const std::byte> sealed() const;
  bool push();

  const OpenSsl& openssl_;
  const int socket_;
  const std::string key_;
  std::unique_ptr<ssl_ctx_st, Free> context_;
  std::unique_ptr<ssl_st, Free> session_;
  // What OpenSSL has made for the socket; owned by the session.
  bio_st* sealed_ = nullptr;
  std::size_t pushed_ = 0;        // bytes of `sealed_` that the socket has taken
  std::uint64_t num_pushed_ = 0;  // all that the socket has taken
  std::uint64_t num_taken_ = 0;
  std::uint64_t num_confirmed_ = 0;
  std::deque<Record> records_;          // not confirmed yet
  std::unique_ptr<std::byte[]> plain_;  // one record's
  bool is_broken_ = false;              // the socket takes nothing more
  std::string problem_;
  mutable std::mutex mutex_;  // guards all of it
};

}  // namespace allhands
