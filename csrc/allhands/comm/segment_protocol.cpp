#include "allhands/comm/segment_protocol.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

#include "allhands/base/error.hpp"

namespace allhands {
namespace {

Digest keyed_hash(const Token& token, std::string_view message) {
  const auto* key = reinterpret_cast<const char*>(token.data());
  return hmac_sha256({key, token.size()}, message);
}

}  // namespace

Token derived_token(const Token& token, const std::string& purpose) {
  const Digest digest = keyed_hash(token, purpose);
  Token derived;
  std::memcpy(derived.data(), digest.data(), derived.size());
  return derived;
}

std::uint64_t key_of(const Token& derived) {
  std::uint64_t key;
  std::memcpy(&key, derived.data(), sizeof(key));
  return key;
}

// "allhands-" and half a hash in hexadecimal.
std::string segment_name(const Token& token) {
  static constexpr char kDigits[] = "0123456789abcdef";
  const Digest digest = keyed_hash(token, "name of the segment");
  std::string name = "allhands-";
  for (std::size_t i = 0; i < digest.size() / 2; ++i) {
    name += kDigits[digest[i] >> 4];
    name += kDigits[digest[i] & 15];
  }
  return name;
}

namespace segment {

Digest joiner_proof(const Token& token, std::int32_t rank, const Nonce& nonce) {
  return keyed_hash(token, "joiner " + std::to_string(rank) + " " +
                               std::string(nonce.data(), nonce.size()));
}

Digest server_proof(const Token& token, const Nonce& nonce) {
  return keyed_hash(token, "server " + std::string(nonce.data(), nonce.size()));
}

// The address of an abstract socket: a zero byte, then its name.
SocketName::SocketName(const std::string& name) {
  value.sun_family = AF_UNIX;
  std::memcpy(value.sun_path + 1, name.data(), name.size());
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

Fd make_socket() {
  Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) throw system_error(ErrorKind::Backend, "Unix socket", errno);
  return fd;
}

namespace {

// The process that has connected, or that listens; none if the kernel does not tell.
std::optional<ucred> peer_of(const Fd& connection) {
  ucred peer = {};
  socklen_t length = sizeof(peer);
  if (getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
    return std::nullopt;
  return peer;
}

}  // namespace

bool is_same_user(const Fd& connection) {
  const std::optional<ucred> peer = peer_of(connection);
  return peer && peer->uid == geteuid();
}

int pid_of_peer(const Fd& connection) {
  const std::optional<ucred> peer = peer_of(connection);
  return peer ? peer->pid : 0;
}

bool send_record(const Fd& connection, const void* record, std::size_t bytes) {
  return send(connection.get(), record, bytes, MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes);
}

namespace {

// An Answer, with room for one descriptor.
struct AnswerMessage {
  explicit AnswerMessage(Answer& answer) : vector{&answer, sizeof(answer)} {
    header.msg_iov = &vector;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
  }

  iovec vector;
  msghdr header = {};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
};

}  // namespace

void send_answer(const Fd& connection, const Answer& answer, int fd) {
  Answer copy = answer;
  AnswerMessage message(copy);
  cmsghdr* const control = CMSG_FIRSTHDR(&message.header);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(control), &fd, sizeof(int));
  sendmsg(connection.get(), &message.header, MSG_NOSIGNAL);
}

Parcel receive_answer(const Fd& connection) {
  Parcel parcel;
  AnswerMessage message(parcel.answer);
  const ssize_t bytes = recvmsg(connection.get(), &message.header, MSG_CMSG_CLOEXEC);
  parcel.is_whole = bytes == static_cast<ssize_t>(sizeof(Answer));
  parcel.is_lost = (message.header.msg_flags & MSG_CTRUNC) != 0;
  const cmsghdr* const control = CMSG_FIRSTHDR(&message.header);
  if (bytes < 0 || control == nullptr || control->cmsg_type != SCM_RIGHTS ||
      control->cmsg_len != CMSG_LEN(sizeof(int)))
    return parcel;
  int fd;
  std::memcpy(&fd, CMSG_DATA(control), sizeof(int));
  parcel.fd = Fd(fd);
  return parcel;
}

}  // namespace segment
}  // namespace allhands
