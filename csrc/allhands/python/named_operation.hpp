// Errors about a caller's arguments that say which operation they are of.
#pragma once

namespace allhands::python {

// Within a handler: throws what is being handled. If it is about an argument, its text
// begins with the operation, unless it names it already.
[[noreturn]] void rethrow_naming(const char* operation);

// Runs `check`; errors about arguments that it throws name the operation.
template <class Check>
decltype(auto) naming(const char* operation, Check check) try {
  return check();
} catch (...) {
  rethrow_naming(operation);
}

}  // namespace allhands::python
