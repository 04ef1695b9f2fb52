// What the bytes of a connection go through: a socket, with or without encryption.
// Nothing here waits. One thread may send while another one receives.
#pragma once

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "allhands/net/unforked_fd.hpp"
#include "allhands/transport/tcp/tls_session.hpp"

namespace allhands {

// The socket of a connection, with TLS or without.
class Wire {
 public:
  Wire() = default;
  // `tls` is a session whose handshake over `socket` is done; null: no encryption.
  explicit Wire(UnforkedFd socket, std::unique_ptr<TlsSession> tls = nullptr)
      : socket_(std::move(socket)), tls_(std::move(tls)) {}

  int fd() const { return socket_.get(); }
  bool is_open() const { return socket_.is_open(); }

  // As sendmsg(2). With encryption, some of what it took may be left for flush() to
  // send.
  ssize_t send(std::span<iovec> parts) {
    if (tls_) return tls_->send(parts);
    msghdr message = {};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    return ::sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  // As readv(2).
  ssize_t receive(std::span<const iovec> parts) {
    if (tls_) return tls_->receive(parts);
    return ::readv(fd(), parts.data(), static_cast<int>(parts.size()));
  }
  // Whether receive() has something although the socket is not readable.
  bool has_received() const { return tls_ && tls_->has_decrypted(); }
  // Returns false if the socket has not taken all that send() took.
  bool flush() { return !tls_ || tls_->flush(); }
  // The bytes that send() took and the peer's kernel may lack; none if that is unknown.
  std::optional<std::uint64_t> unconfirmed() {
    if (tls_) return tls_->unconfirmed();
    int in_kernel = 0;
    if (::ioctl(fd(), SIOCOUTQ, &in_kernel) != 0) return std::nullopt;
    return static_cast<std::uint64_t>(in_kernel);
  }

  // As shutdown(2).
  bool shut_down(int how) { return ::shutdown(fd(), how) == 0; }
  // The explicit shutdown is needed as a forked child may hold a copy of the socket;
  // then close() alone would not tell the peer.
  void close() {
    if (is_open()) shut_down(SHUT_RDWR);
    tls_.reset();
    socket_.reset();
  }

 private:
  UnforkedFd socket_;
  std::unique_ptr<TlsSession> tls_;
};

}  // namespace allhands
