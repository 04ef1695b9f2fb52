#include "allhands/transport/tcp/tls_session.hpp"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "allhands/base/error.hpp"

namespace allhands {
namespace {

// The most bytes that one TLS record holds.
constexpr std::size_t kRecordBytes = std::size_t{16} << 10;
// How much is encrypted before the socket is asked whether it takes some.
constexpr std::size_t kMostAtOnce = std::size_t{256} << 10;
// The handshake in front of TLS has agreed on the key; TLS needs a name for it.
constexpr const char* kIdentity = "allhands";
constexpr const char* kCipher = "TLS_AES_128_GCM_SHA256";

unsigned put_key(ssl_st* session, unsigned char* room, unsigned bytes) {
  const auto* const key =
      static_cast<const std::string*>(OpenSsl::loaded().get_ex_data(session, 0));
  if (key == nullptr || key->size() > bytes) return 0;
  std::memcpy(room, key->data(), key->size());
  return static_cast<unsigned>(key->size());
}

unsigned key_of_client(ssl_st* session, const char*, char* identity,
                       unsigned max_identity, unsigned char* key, unsigned max_key) {
  if (max_identity <= std::strlen(kIdentity)) return 0;
  std::strcpy(identity, kIdentity);
  return put_key(session, key, max_key);
}

unsigned key_of_server(ssl_st* session, const char* identity, unsigned char* key,
                       unsigned max_key) {
  if (std::strcmp(identity, kIdentity) != 0) return 0;
  return put_key(session, key, max_key);
}

// The errno of a read that returned nothing, for OpenSSL's `error` and the system's
// `code`.
// OpenSSL would try again where a socket is no longer connected.
int why_not(int error, int code) {
  if (error == OpenSsl::kErrorWantRead) return code == ENOTCONN ? code : EAGAIN;
  return error == OpenSsl::kErrorSyscall && code != 0 ? code : EPROTO;
}

}  // namespace

void TlsSession::Free::operator()(ssl_ctx_st* context) const {
  OpenSsl::loaded().ctx_free(context);
}

void TlsSession::Free::operator()(ssl_st* session) const {
  OpenSsl::loaded().ssl_free(session);
}

TlsSession::TlsSession(int socket, Role role, std::string key)
    : openssl_(OpenSsl::loaded()), socket_(socket), key_(std::move(key)) {
  context_.reset(openssl_.ctx_new(openssl_.tls_method()));
  const bool is_ready = context_ != nullptr &&
                        openssl_.ctx_ctrl(context_.get(), OpenSsl::kSetMinVersion,
                                          OpenSsl::kTls13, nullptr) == 1 &&
                        openssl_.ctx_set_ciphersuites(context_.get(), kCipher) == 1 &&
                        openssl_.ctx_set_num_tickets(context_.get(), 0) == 1;
  if (!is_ready)
    throw Error(ErrorKind::Backend, "OpenSSL has no TLS 1.3 with " +
                                        std::string(kCipher) + ": " +
                                        openssl_.problem());
  openssl_.ctx_set_options(context_.get(), OpenSsl::kIgnoreEof);
  openssl_.ctx_set_psk_client(context_.get(), key_of_client);
  openssl_.ctx_set_psk_server(context_.get(), key_of_server);
  session_.reset(openssl_.ssl_new(context_.get()));
  bio_st* const from_socket = openssl_.bio_new_socket(socket, 0);
  sealed_ = openssl_.bio_new(openssl_.bio_memory());
  if (session_ == nullptr || from_socket == nullptr || sealed_ == nullptr) {
    if (from_socket != nullptr) openssl_.bio_free(from_socket);
    if (sealed_ != nullptr) openssl_.bio_free(sealed_);
    throw Error(ErrorKind::Backend, "OpenSSL makes no session: " + openssl_.problem());
  }
  openssl_.set_bio(session_.get(), from_socket, sealed_);
  openssl_.set_ex_data(session_.get(), 0, const_cast<std::string*>(&key_));
  if (role == Role::Client)
    openssl_.set_connect_state(session_.get());
  else
    openssl_.set_accept_state(session_.get());
  plain_ = std::make_unique_for_overwrite<std::byte[]>(kRecordBytes);
}

TlsSession::Progress TlsSession::shake() {
  const std::lock_guard lock(mutex_);
  openssl_.clear_errors();
  const int returned = openssl_.do_handshake(session_.get());
  const int error = openssl_.get_error(session_.get(), returned);
  if (returned != 1 && error != OpenSsl::kErrorWantRead) {
    problem_ = "the TLS handshake failed: " + openssl_.problem();
    push();  // sends the alert, so that the peer knows why
    return Progress::Failed;
  }
  if (!push() || is_broken_) {  // a new socket has room for these few hundred bytes
    problem_ = "the socket does not take the TLS handshake";
    return Progress::Failed;
  }
  return returned == 1 ? Progress::Done : Progress::Going;
}

std::span<const std::byte> TlsSession::sealed() const {
  void* memory = nullptr;
  const long bytes = openssl_.bio_ctrl(sealed_, OpenSsl::kBioData, 0, &memory);
  if (bytes <= 0) return {};
  return std::span(static_cast<const std::byte*>(memory),
                   static_cast<std::size_t>(bytes))
      .subspan(pushed_);
}

// Returns false if the socket takes the rest later. If the socket has failed, there is
// no rest; a thread that receives finds out why.
bool TlsSession::push() {
  while (!is_broken_) {
    const std::span<const std::byte> rest = sealed();
    if (rest.empty()) break;
    const ssize_t count =
        ::send(socket_, rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    is_broken_ = count <= 0;
    if (is_broken_) break;
    pushed_ += static_cast<std::size_t>(count);
    num_pushed_ += static_cast<std::uint64_t>(count);
  }
  if (pushed_ != 0 || is_broken_)
    openssl_.bio_ctrl(sealed_, OpenSsl::kBioReset, 0, nullptr);
  pushed_ = 0;
  return true;
}

// Returns false on failure, for example if OpenSSL has no memory. Then nothing more
// goes over this socket.
bool TlsSession::seal(std::span<const std::byte> plain) {
  std::size_t written = 0;
  openssl_.clear_errors();
  if (openssl_.write(session_.get(), plain.data(), plain.size(), &written) != 1) {
    ::shutdown(socket_, SHUT_RDWR);
    is_broken_ = true;
    return false;
  }
  num_taken_ += plain.size();
  records_.push_back({num_taken_, num_pushed_ + sealed().size()});
  return true;
}

ssize_t TlsSession::send(std::span<const iovec> parts) {
  const std::lock_guard lock(mutex_);
  if (!push() || is_broken_) {
    errno = is_broken_ ? EPIPE : EAGAIN;
    return -1;
  }
  const std::uint64_t before = num_taken_;
  std::size_t room = kMostAtOnce, in_record = 0;
  bool is_well = true;
  for (const iovec& part : parts) {
    const auto* from = static_cast<const std::byte*>(part.iov_base);
    std::size_t rest = std::min(part.iov_len, room);
    room -= rest;
    while (rest != 0 && is_well) {
      const std::size_t count = std::min(rest, kRecordBytes - in_record);
      std::memcpy(plain_.get() + in_record, from, count);
      from += count, rest -= count, in_record += count;
      if (in_record == kRecordBytes)
        is_well = seal({plain_.get(), std::exchange(in_record, 0)});
    }
  }
  if (is_well && in_record != 0) seal({plain_.get(), in_record});
  push();
  return static_cast<ssize_t>(num_taken_ - before);
}

bool TlsSession::flush() {
  const std::lock_guard lock(mutex_);
  return push();
}

ssize_t TlsSession::receive(std::span<const iovec> parts) {
  const std::lock_guard lock(mutex_);
  std::size_t total = 0;
  for (const iovec& part : parts) {
    auto* const to = static_cast<std::byte*>(part.iov_base);
    for (std::size_t at = 0; at < part.iov_len;) {
      std::size_t count = 0;
      openssl_.clear_errors();
      errno = 0;
      const int returned =
          openssl_.read(session_.get(), to + at, part.iov_len - at, &count);
      if (returned == 1) {
        at += count, total += count;
        continue;
      }
      const int code = errno;
      const int error = openssl_.get_error(session_.get(), returned);
      // The next call reports the error.
      if (total != 0) return static_cast<ssize_t>(total);
      if (error == OpenSsl::kErrorZeroReturn) return 0;
      errno = why_not(error, code);
      return -1;
    }
  }
  return static_cast<ssize_t>(total);
}

bool TlsSession::has_decrypted() const {
  const std::lock_guard lock(mutex_);
  return openssl_.pending(session_.get()) > 0;
}

std::optional<std::uint64_t> TlsSession::unconfirmed() {
  const std::lock_guard lock(mutex_);
  int in_kernel = 0;
  if (::ioctl(socket_, SIOCOUTQ, &in_kernel) != 0) return std::nullopt;
  // The kernel may also count bytes of the handshake in front of TLS. Then less counts
  // as confirmed than is.
  const std::uint64_t confirmed =
      num_pushed_ - std::min(num_pushed_, static_cast<std::uint64_t>(in_kernel));
  while (!records_.empty() && records_.front().sealed_end <= confirmed) {
    num_confirmed_ = records_.front().plain_end;
    records_.pop_front();
  }
  return num_taken_ - num_confirmed_;
}

}  // namespace allhands
