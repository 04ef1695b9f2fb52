// What the bytes of a connection go through: a socket, as they are or encrypted. Never
// waits. One thread may send while another receives.
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
  // `tls`: whose handshake over `socket` is done; null: bytes go as they are.
  explicit Wire(UnforkedFd socket, std::unique_ptr<TlsSession> tls = nullptr)
      : socket_(std::move(socket)), tls_(std::move(tls)) {}

  int fd() const { return socket_.get(); }
  bool is_open() const { return socket_.is_open(); }

  // As sendmsg(2). What it took goes by itself, or by flush() where it is encrypted.
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
  // Whether receive() has something for which the socket will not be readable.
  bool has_received() const { return tls_ && tls_->has_decrypted(); }
  // False: the socket has not taken all that send() took.
  bool flush() { return !tls_ || tls_->flush(); }
  // Bytes that send() took and the peer's kernel may lack; none: it cannot be told.
  std::optional<std::uint64_t> unconfirmed() {
    if (tls_) return tls_->unconfirmed();
    int in_kernel = 0;
    if (::ioctl(fd(), SIOCOUTQ, &in_kernel) != 0) return std::nullopt;
    return static_cast<std::uint64_t>(in_kernel);
  }

  // Of the socket, as shutdown(2) says.
  bool shut_down(int how) { return ::shutdown(fd(), how) == 0; }
  // Said outright: a forked child may hold a copy, and then close() says nothing.
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
