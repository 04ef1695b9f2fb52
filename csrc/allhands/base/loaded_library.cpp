#include "allhands/base/loaded_library.hpp"

#include <dlfcn.h>

namespace allhands {

LoadedLibrary::LoadedLibrary(const std::string& name, OnMissing on_missing)
    : name_(name),
      on_missing_(on_missing),
      handle_(::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ == nullptr) on_missing_(::dlerror());
}

void* LoadedLibrary::address_of(const char* name) const {
  void* const found = ::dlsym(handle_, name);
  if (found == nullptr) on_missing_(name_ + " has no " + name);
  return found;
}

}  // namespace allhands
