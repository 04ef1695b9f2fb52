#include "allhands/python/named_operation.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cctype>
#include <string>

#include "allhands/base/error.hpp"
#include "allhands/python/imported.hpp"

namespace nb = nanobind;

namespace allhands::python {
namespace {

bool is_of_argument(ErrorKind kind) {
  return kind == ErrorKind::Value || kind == ErrorKind::Type ||
         kind == ErrorKind::Unsupported;
}

// Derived classes of others are for other code to catch.
bool is_of_argument(nb::handle type) {
  static PyObject* const of_value = imported("allhands.errors", "ArgumentError");
  static PyObject* const of_dtype =
      imported("allhands.errors", "UnsupportedDTypeError");
  return type.is(PyExc_ValueError) || type.is(PyExc_TypeError) ||
         type.is(PyExc_RuntimeError) || type.is(of_value) || type.is(of_dtype);
}

bool is_of_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

// As a whole word: `gather_list` does not name gather.
bool names(const std::string& text, const std::string& operation) {
  for (std::size_t at = text.find(operation); at != std::string::npos;
       at = text.find(operation, at + 1)) {
    const std::size_t end = at + operation.size();
    if ((at == 0 || !is_of_word(text[at - 1])) &&
        (end == text.size() || !is_of_word(text[end])))
      return true;
  }
  return false;
}

}  // namespace

void rethrow_naming(const char* operation) {
  const std::string subject = std::string(operation) + ": ";
  try {
    throw;
  } catch (const Error& error) {
    const std::string text = error.what();
    if (!is_of_argument(error.kind()) || names(text, operation)) throw;
    throw error.retold(subject + text);
  } catch (const nb::python_error& error) {
    if (!is_of_argument(error.type())) throw;
    const auto text = nb::cast<std::string>(nb::str(error.value()));
    if (!names(text, operation))
      nb::setattr(error.value(), "args", nb::make_tuple(subject + text));
    throw;
  }
}

}  // namespace allhands::python
