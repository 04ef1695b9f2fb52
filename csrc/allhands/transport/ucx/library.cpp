#include "allhands/transport/ucx/library.hpp"

#include <array>
#include <csignal>
#include <mutex>
#include <optional>

#include "allhands/base/error.hpp"
#include "allhands/base/loaded_library.hpp"

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

// libucp depends on libucs, so it gives the functions of both.
Ucx load_from(const std::string& name) {
  const KeptSignals kept;
  const LoadedLibrary library(name, &throw_missing);
  Ucx all;
  library.find("ucp_get_version_string", all.version);
  library.find("ucp_get_version", all.version_numbers);
  library.find("ucp_config_read", all.config_read);
  library.find("ucp_config_modify", all.config_modify);
  library.find("ucp_config_release", all.config_release);
  library.find("ucp_init_version", all.init_version);
  library.find("ucp_cleanup", all.cleanup);
  library.find("ucp_worker_create", all.worker_create);
  library.find("ucp_worker_destroy", all.worker_destroy);
  library.find("ucp_worker_get_address", all.worker_get_address);
  library.find("ucp_worker_release_address", all.worker_release_address);
  library.find("ucp_worker_progress", all.worker_progress);
  library.find("ucp_worker_get_efd", all.worker_get_efd);
  library.find("ucp_worker_arm", all.worker_arm);
  library.find("ucp_ep_create", all.ep_create);
  library.find("ucp_ep_close_nbx", all.ep_close);
  library.find("ucp_tag_send_nbx", all.tag_send);
  library.find("ucp_tag_recv_nbx", all.tag_recv);
  library.find("ucp_request_cancel", all.request_cancel);
  library.find("ucp_request_free", all.request_free);
  library.find("ucs_status_string", all.describe);
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
