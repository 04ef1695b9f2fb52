// The functions of OpenSSL that this package calls. The library is loaded on first use,
// so a process that encrypts nothing needs no OpenSSL. The functions are declared here,
// so that building the package needs no headers of OpenSSL either.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

// OpenSSL's own types, used by pointer only.
struct ssl_st;
struct ssl_ctx_st;
struct ssl_method_st;
struct bio_st;
struct bio_method_st;

namespace allhands {

// The loaded library. It stays until the process ends. This package asks it not to
// clean up at exit, since a thread may still use it then. That has no effect if other
// code, such as Python's `ssl`, has used the library before.
struct OpenSsl {
  using PskClient = unsigned (*)(ssl_st*, const char* hint, char* identity,
                                 unsigned max_identity, unsigned char* key,
                                 unsigned max_key);
  using PskServer = unsigned (*)(ssl_st*, const char* identity, unsigned char* key,
                                 unsigned max_key);

  // Values of OpenSSL's headers, which are part of its ABI.
  static constexpr int kErrorWantRead = 2;
  static constexpr int kErrorSyscall = 5;
  static constexpr int kErrorZeroReturn = 6;
  static constexpr int kSetMinVersion = 123;       // SSL_CTRL_SET_MIN_PROTO_VERSION
  static constexpr long kTls13 = 0x0304;           // TLS1_3_VERSION
  static constexpr int kBioReset = 1;              // BIO_CTRL_RESET
  static constexpr int kBioData = 3;               // BIO_CTRL_INFO
  static constexpr unsigned kIgnoreEof = 1u << 7;  // SSL_OP_IGNORE_UNEXPECTED_EOF
  static constexpr std::uint64_t kNoAtExit = 0x00080000;  // OPENSSL_INIT_NO_ATEXIT

  // Throws Backend if there is no OpenSSL of version 3.
  static const OpenSsl& loaded();

  // Why the last call of this thread failed; clears the error.
  std::string problem() const;

  int (*init_ssl)(std::uint64_t options, const void* settings);
  const ssl_method_st* (*tls_method)();
  ssl_ctx_st* (*ctx_new)(const ssl_method_st*);
  void (*ctx_free)(ssl_ctx_st*);
  long (*ctx_ctrl)(ssl_ctx_st*, int command, long number, void* pointer);
  std::uint64_t (*ctx_set_options)(ssl_ctx_st*, std::uint64_t);
  int (*ctx_set_ciphersuites)(ssl_ctx_st*, const char*);
  int (*ctx_set_num_tickets)(ssl_ctx_st*, std::size_t);
  void (*ctx_set_psk_client)(ssl_ctx_st*, PskClient);
  void (*ctx_set_psk_server)(ssl_ctx_st*, PskServer);
  ssl_st* (*ssl_new)(ssl_ctx_st*);
  void (*ssl_free)(ssl_st*);
  void (*set_bio)(ssl_st*, bio_st* read, bio_st* write);
  void (*set_connect_state)(ssl_st*);
  void (*set_accept_state)(ssl_st*);
  int (*set_ex_data)(ssl_st*, int index, void*);
  void* (*get_ex_data)(const ssl_st*, int index);
  int (*do_handshake)(ssl_st*);
  int (*read)(ssl_st*, void*, std::size_t, std::size_t*);
  int (*write)(ssl_st*, const void*, std::size_t, std::size_t*);
  int (*get_error)(const ssl_st*, int returned);
  int (*pending)(const ssl_st*);
  bio_st* (*bio_new)(const bio_method_st*);
  const bio_method_st* (*bio_memory)();
  bio_st* (*bio_new_socket)(int socket, int closes);
  int (*bio_free)(bio_st*);
  long (*bio_ctrl)(bio_st*, int command, long number, void* pointer);
  unsigned long (*get_code)();
  void (*clear_errors)();
  void (*describe)(unsigned long code, char* text, std::size_t room);
};

}  // namespace allhands
