#include "allhands/transport/ucx/library.hpp"

#include <dlfcn.h>

#include <array>
#include <csignal>
#include <mutex>
#include <optional>

#include "allhands/base/error.hpp"

namespace allhands {
namespace {

constexpr unsigned kMajor = 1;
constexpr unsigned kLeastMinor = 13;

[[noreturn]] void throw_missing(const std::string& problem) {
  throw Error(ErrorKind::Backend,
              "there is no UCX (" + problem +
                  "): install it (Debian and Ubuntu: libucx0; Fedora: ucx; pip: "
                  "libucx-cu12) or set ALLHANDS_TRANSPORT=tcp on every host");
}

// UCX takes over the signals of crashes as it is loaded, to print a stack. They belong
// to the program, which may have its own handlers, such as Python's faulthandler.
class KeptSignals {
 public:
  KeptSignals() {
    for (std::size_t i = 0; i < kSignals.size(); ++i)
      ::sigaction(kSignals[i], nullptr, &actions_[i]);
  }
  KeptSignals(const KeptSignals&) = delete;
  KeptSignals& operator=(const KeptSignals&) = delete;
  ~KeptSignals() {
    for (std::size_t i = 0; i < kSignals.size(); ++i)
      ::sigaction(kSignals[i], &actions_[i], nullptr);
  }

 private:
  static constexpr std::array kSignals = {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGABRT};
  std::array<struct sigaction, kSignals.size()> actions_;
};

template <class Function>
void find(void* library, const char* name, Function& function) {
  void* const found = ::dlsym(library, name);
  if (found == nullptr) throw_missing(std::string("it has no ") + name);
  function = reinterpret_cast<Function>(found);
}

// libucp depends on libucs, so its handle gives the functions of both.
Ucx load_from(const std::string& name) {
  const KeptSignals kept;
  void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw_missing(::dlerror());
  Ucx all;
  find(library, "ucp_get_version_string", all.version);
  find(library, "ucp_get_version", all.version_numbers);
  find(library, "ucp_config_read", all.config_read);
  find(library, "ucp_config_modify", all.config_modify);
  find(library, "ucp_config_release", all.config_release);
  find(library, "ucp_init_version", all.init_version);
  find(library, "ucp_cleanup", all.cleanup);
  find(library, "ucp_worker_create", all.worker_create);
  find(library, "ucp_worker_destroy", all.worker_destroy);
  find(library, "ucp_worker_get_address", all.worker_get_address);
  find(library, "ucp_worker_release_address", all.worker_release_address);
  find(library, "ucp_worker_progress", all.worker_progress);
  find(library, "ucp_worker_get_efd", all.worker_get_efd);
  find(library, "ucp_worker_arm", all.worker_arm);
  find(library, "ucp_ep_create", all.ep_create);
  find(library, "ucp_ep_close_nbx", all.ep_close);
  find(library, "ucp_tag_send_nbx", all.tag_send);
  find(library, "ucp_tag_recv_nbx", all.tag_recv);
  find(library, "ucp_request_cancel", all.request_cancel);
  find(library, "ucp_request_free", all.request_free);
  find(library, "ucs_status_string", all.describe);
  unsigned major = 0, minor = 0, release = 0;
  all.version_numbers(&major, &minor, &release);
  if (major != kMajor || minor < kLeastMinor)
    throw_missing(std::string("it is version ") + all.version() +
                  " where 1.13 or a later 1.x is needed");
  return all;
}

}  // namespace

const Ucx& Ucx::load(const std::string& library) {
  static std::mutex mutex;
  static std::optional<Ucx> found;
  const std::lock_guard lock(mutex);
  if (!found) found = load_from(library);
  return *found;
}

}  // namespace allhands
