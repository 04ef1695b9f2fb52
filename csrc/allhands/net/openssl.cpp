#include "allhands/net/openssl.hpp"

#include <dlfcn.h>

#include "allhands/base/error.hpp"

namespace allhands {
namespace {

constexpr const char* kLibrary = "libssl.so.3";

[[noreturn]] void throw_missing(const std::string& problem) {
  throw Error(ErrorKind::Backend,
              "connections cannot be encrypted, since OpenSSL 3 cannot be loaded (" +
                  problem + "): install it (Debian and Ubuntu: libssl3; Fedora: " +
                  "openssl-libs) or unset ALLHANDS_TLS");
}

// libssl depends on libcrypto, so its handle gives the functions of both.
template <class Function>
void find(void* library, const char* name, Function& function) {
  void* const found = ::dlsym(library, name);
  if (found == nullptr) throw_missing(std::string(kLibrary) + " has no " + name);
  function = reinterpret_cast<Function>(found);
}

OpenSsl load() {
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw_missing(::dlerror());
  OpenSsl all;
  find(library, "OPENSSL_init_ssl", all.init_ssl);
  find(library, "TLS_method", all.tls_method);
  find(library, "SSL_CTX_new", all.ctx_new);
  find(library, "SSL_CTX_free", all.ctx_free);
  find(library, "SSL_CTX_ctrl", all.ctx_ctrl);
  find(library, "SSL_CTX_set_options", all.ctx_set_options);
  find(library, "SSL_CTX_set_ciphersuites", all.ctx_set_ciphersuites);
  find(library, "SSL_CTX_set_num_tickets", all.ctx_set_num_tickets);
  find(library, "SSL_CTX_set_psk_client_callback", all.ctx_set_psk_client);
  find(library, "SSL_CTX_set_psk_server_callback", all.ctx_set_psk_server);
  find(library, "SSL_new", all.ssl_new);
  find(library, "SSL_free", all.ssl_free);
  find(library, "SSL_set_bio", all.set_bio);
  find(library, "SSL_set_connect_state", all.set_connect_state);
  find(library, "SSL_set_accept_state", all.set_accept_state);
  find(library, "SSL_set_ex_data", all.set_ex_data);
  find(library, "SSL_get_ex_data", all.get_ex_data);
  find(library, "SSL_do_handshake", all.do_handshake);
  find(library, "SSL_read_ex", all.read);
  find(library, "SSL_write_ex", all.write);
  find(library, "SSL_get_error", all.get_error);
  find(library, "SSL_pending", all.pending);
  find(library, "BIO_new", all.bio_new);
  find(library, "BIO_s_mem", all.bio_memory);
  find(library, "BIO_new_socket", all.bio_new_socket);
  find(library, "BIO_free", all.bio_free);
  find(library, "BIO_ctrl", all.bio_ctrl);
  find(library, "ERR_get_error", all.get_code);
  find(library, "ERR_clear_error", all.clear_errors);
  find(library, "ERR_error_string_n", all.describe);
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
