// How a rank that has a group's segment hands it to one that joins: over an abstract
// Unix socket, in records (SOCK_SEQPACKET).
//
//   joiner -> server   Hello: its rank, a nonce, its proof
//   server -> joiner   Answer: its proof; with it the descriptor (SCM_RIGHTS)
//   joiner -> server   Taken
//   server -> joiner   Counted
//
// Abstract names are visible to every user of the host, so each side checks that the
// other runs under its own user (SO_PEERCRED) and proves that it knows the group's
// token, without telling it: the proof is a keyed hash of the nonce. A rank counts as
// served once it has said that it has the descriptor; a rank with no free descriptor
// loses it. The rank uses the segment only once it knows that it was counted: if the
// server dies before saying so, this rank may be the only one with that segment.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "allhands/base/fd.hpp"
#include "allhands/net/sha256.hpp"

namespace allhands {

// Known to the ranks of one group only, different for every group of every job.
using Token = std::array<std::byte, 32>;

// Another token, for the given `purpose`, which reveals nothing about `token`.
Token derived_token(const Token& token, const std::string& purpose);

// A number that stands for `derived`, for everyone to see.
std::uint64_t key_of(const Token& derived);

// The name of a group's socket and of its memory; does not reveal the token.
std::string segment_name(const Token& token);

namespace segment {

using Nonce = std::array<char, 16>;

// What a joiner sends first.
struct Hello {
  std::int32_t rank;
  Nonce nonce;
  Digest proof;
};

// What the server replies; the segment's descriptor travels with it.
struct Answer {
  Digest proof;
};

inline constexpr char kTaken = 'T';
inline constexpr char kCounted = 'C';

Digest joiner_proof(const Token& token, std::int32_t rank, const Nonce& nonce);
Digest server_proof(const Token& token, const Nonce& nonce);

// The abstract Unix address of a group.
struct SocketName {
  explicit SocketName(const std::string& name);

  sockaddr_un value = {};
  socklen_t length = 0;
};

// Throws Backend if no descriptor is free for it.
Fd make_socket();
bool is_same_user(const Fd& connection);
// 0 if it is unknown.
int pid_of_peer(const Fd& connection);
// Sends a record of exactly these bytes; returns whether it went out.
bool send_record(const Fd& connection, const void* record, std::size_t bytes);

// An Answer and the descriptor that travels with it.
struct Parcel {
  Answer answer = {};
  Fd fd;
  bool is_whole = false;  // all of an Answer came
  bool is_lost = false;   // there was no free descriptor to take it
};

// If sending fails, the peer sees the connection close and tries again.
void send_answer(const Fd& connection, const Answer& answer, int fd);
Parcel receive_answer(const Fd& connection);

}  // namespace segment
}  // namespace allhands
