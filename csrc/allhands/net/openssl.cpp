#include "allhands/net/openssl.hpp"

#include "allhands/base/error.hpp"
#include "allhands/base/loaded_library.hpp"

namespace allhands {
namespace {

constexpr const char* kLibrary = "libssl.so.3";

[[noreturn]] void throw_missing(const std::string& problem) {
  throw Error(ErrorKind::Backend,
              "connections cannot be encrypted, since OpenSSL 3 cannot be loaded (" +
                  problem + "): install it (Debian and Ubuntu: libssl3; Fedora: " +
                  "openssl-libs) or unset ALLHANDS_TLS");
}

// libssl depends on libcrypto, so it gives the functions of both.
OpenSsl load() {
  const LoadedLibrary library(kLibrary, &throw_missing);
  OpenSsl all;
  library.find("OPENSSL_init_ssl", all.init_ssl);
  library.find("TLS_method", all.tls_method);
  library.find("SSL_CTX_new", all.ctx_new);
  library.find("SSL_CTX_free", all.ctx_free);
  library.find("SSL_CTX_ctrl", all.ctx_ctrl);
  library.find("SSL_CTX_set_options", all.ctx_set_options);
  library.find("SSL_CTX_set_ciphersuites", all.ctx_set_ciphersuites);
  library.find("SSL_CTX_set_num_tickets", all.ctx_set_num_tickets);
  library.find("SSL_CTX_set_psk_client_callback", all.ctx_set_psk_client);
  library.find("SSL_CTX_set_psk_server_callback", all.ctx_set_psk_server);
  library.find("SSL_new", all.ssl_new);
  library.find("SSL_free", all.ssl_free);
  library.find("SSL_set_bio", all.set_bio);
  library.find("SSL_set_connect_state", all.set_connect_state);
  library.find("SSL_set_accept_state", all.set_accept_state);
  library.find("SSL_set_ex_data", all.set_ex_data);
  library.find("SSL_get_ex_data", all.get_ex_data);
  library.find("SSL_do_handshake", all.do_handshake);
  library.find("SSL_read_ex", all.read);
  library.find("SSL_write_ex", all.write);
  library.find("SSL_get_error", all.get_error);
  library.find("SSL_pending", all.pending);
  library.find("BIO_new", all.bio_new);
  library.find("BIO_s_mem", all.bio_memory);
  library.find("BIO_new_socket", all.bio_new_socket);
  library.find("BIO_free", all.bio_free);
  library.find("BIO_ctrl", all.bio_ctrl);
  library.find("ERR_get_error", all.get_code);
  library.find("ERR_clear_error", all.clear_errors);
  library.find("ERR_error_string_n", all.describe);
  all.init_ssl(OpenSsl::kNoAtExit, nullptr);
  return all;
}

}  // namespace

const OpenSsl& OpenSsl::loaded() {
  static const OpenSsl library = load();
  return library;
}

std::string OpenSsl::problem() const {
  const unsigned long code = get_code();
  clear_errors();
  if (code == 0) return "no reason given";
  char text[256];
  describe(code, text, sizeof(text));
  return text;
}

}  // namespace allhands
