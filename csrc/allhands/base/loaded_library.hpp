// A library of the system that is loaded on request, so that neither building the
// package nor a process that does without it needs it.
#pragma once

#include <string>

namespace allhands {

// The loaded library. It stays until the process ends.
class LoadedLibrary {
 public:
  // Called with what is missing; must throw.
  using OnMissing = void (*)(const std::string& problem);

  // Loads `name`, a path or a name that the system's loader knows.
  LoadedLibrary(const std::string& name, OnMissing on_missing);

  // Sets `function` to the one with this name. Those of the libraries that this one
  // depends on are found, too.
  template <class Function>
  void find(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(address_of(name));
  }

 private:
  void* address_of(const char* name) const;

  const std::string name_;
  const OnMissing on_missing_;
  void* handle_;
};

}  // namespace allhands
