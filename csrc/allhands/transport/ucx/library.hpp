// The functions of UCX (Unified Communication X) that this package calls. The library
// is loaded on request, so a process that does not use it needs no UCX. The functions
// and the heads of structures are declared here, so that building the package needs no
// headers of UCX either.
//
// UCX reads of a structure only the fields that its mask names, so that programs built
// for an older version go on to work. The declarations are those of version 1.13, and
// hold up to 1.22 at least.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

// UCX's own types, used by pointer only.
struct ucp_config;
struct ucp_context;
struct ucp_worker;
struct ucp_address;
struct ucp_ep;

namespace allhands {

// The loaded library. It stays until the process ends.
struct Ucx {
  // Enumerations of UCX that are packed into one byte; negative: an error.
  using Status = std::int8_t;
  // What operations return: null, an error (see is_error), or a request.
  using StatusPointer = void*;
  using Tag = std::uint64_t;

  static constexpr Status kOk = 0;
  static constexpr Status kBusy = -15;
  static constexpr Status kCanceled = -16;

  // ucp_params_t, with what its mask may name.
  struct ContextParams {
    static constexpr std::uint64_t kFeatures = 1u << 0;
    static constexpr std::uint64_t kTagFeature = 1u << 0;
    static constexpr std::uint64_t kWakeupFeature = 1u << 4;

    std::uint64_t mask;
    std::uint64_t features;
    std::byte rest[256];
  };

  // ucp_worker_params_t.
  struct WorkerParams {
    static constexpr std::uint64_t kThreadMode = 1u << 0;
    static constexpr int kSerialized = 1;

    std::uint64_t mask;
    int thread_mode;
    std::byte rest[512];
  };

  // ucp_ep_params_t.
  struct EndpointParams {
    static constexpr std::uint64_t kAddress = 1u << 0;
    static constexpr std::uint64_t kErrorMode = 1u << 1;
    static constexpr std::uint64_t kErrorHandler = 1u << 2;
    static constexpr int kErrorsOfPeer = 1;

    std::uint64_t mask;
    const ucp_address* address;
    int error_mode;
    void (*on_error)(void* argument, ucp_ep*, Status);
    void* argument;
    std::byte rest[512];
  };

  // ucp_tag_recv_info_t.
  struct Received {
    Tag tag;
    std::size_t bytes;
  };
  using OnSent = void (*)(void* request, Status, void* user);
  using OnReceived = void (*)(void* request, Status, const Received*, void* user);

  // ucp_request_param_t.
  struct RequestParams {
    static constexpr std::uint32_t kCallback = 1u << 1;
    static constexpr std::uint32_t kUser = 1u << 2;
    static constexpr std::uint32_t kFlags = 1u << 4;
    static constexpr std::uint32_t kMemoryType = 1u << 6;
    static constexpr std::uint32_t kNeverAtOnce = 1u << 16;  // NO_IMM_CMPL
    static constexpr std::uint32_t kForcedClose = 1u << 0;
    static constexpr int kHostMemory = 0;

    std::uint32_t mask;
    std::uint32_t flags;
    void* request;
    union {
      OnSent sent;
      OnReceived received;
    } callback;
    std::uint64_t datatype;
    void* user;
    void* reply_buffer;
    int memory_type;
    std::byte rest[256];
  };

  // Loads `library`, a path or a name that the system's loader knows, unless one was
  // loaded before. Throws Backend if it cannot be loaded, or is too old.
  static const Ucx& load(const std::string& library);
  // The library that was loaded, or the system's. Throws Backend.
  static const Ucx& loaded() { return load(kSystemLibrary); }

  static bool is_error(StatusPointer returned) {
    return reinterpret_cast<std::uintptr_t>(returned) >=
           static_cast<std::uintptr_t>(std::intptr_t{-100});
  }

  static constexpr const char* kSystemLibrary = "libucp.so.0";

  const char* (*version)();
  void (*version_numbers)(unsigned* major, unsigned* minor, unsigned* release);
  Status (*config_read)(const char* prefix, const char* file, ucp_config**);
  Status (*config_modify)(ucp_config*, const char* name, const char* value);
  void (*config_release)(ucp_config*);
  Status (*init_version)(unsigned major, unsigned minor, const ContextParams*,
                         const ucp_config*, ucp_context**);
  void (*cleanup)(ucp_context*);
  Status (*worker_create)(ucp_context*, const WorkerParams*, ucp_worker**);
  void (*worker_destroy)(ucp_worker*);
  Status (*worker_get_address)(ucp_worker*, ucp_address**, std::size_t* bytes);
  void (*worker_release_address)(ucp_worker*, ucp_address*);
  unsigned (*worker_progress)(ucp_worker*);
  Status (*worker_get_efd)(ucp_worker*, int* fd);
  Status (*worker_arm)(ucp_worker*);
  Status (*ep_create)(ucp_worker*, const EndpointParams*, ucp_ep**);
  StatusPointer (*ep_close)(ucp_ep*, const RequestParams*);
  StatusPointer (*tag_send)(ucp_ep*, const void*, std::size_t bytes, Tag,
                            const RequestParams*);
  StatusPointer (*tag_recv)(ucp_worker*, void*, std::size_t bytes, Tag, Tag mask,
                            const RequestParams*);
  void (*request_cancel)(ucp_worker*, void* request);
  void (*request_free)(void* request);
  const char* (*describe)(Status);
};

}  // namespace allhands
