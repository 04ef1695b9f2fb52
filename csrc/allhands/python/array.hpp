// How arrays of any library become Buffers, in the same way for every operation.
//
// The usual array is read directly, without allocating or running Python code: a plain
// numpy.ndarray from its struct, tensors of registered types through C interfaces of
// their library (tensor.hpp). All others, and all that must be refused, go to
// allhands.arrays.as_buffer.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <utility>
#include <vector>

#include "allhands/base/buffer.hpp"

namespace allhands::python {

// How an operation uses an array; a read-only array refuses Write.
enum class Access { Read, Write };

// The memory of the usual array; nothing for any other.
std::optional<Buffer> read_usual(nanobind::handle array, Access access);

// An array that a caller passed. Its memory lives as long as `owner()`.
class Array {
 public:
  // `name` is the parameter's, for messages.
  Array(nanobind::handle array, Access access, const char* name);

  const Buffer& buffer() const { return buffer_; }
  nanobind::object owner() const { return nanobind::borrow(owner_); }
  // From now on, treats complex numbers as twice as many real ones.
  void view_as_real() { buffer_ = allhands::view_as_real(std::move(buffer_)); }
  // The array as the only one of a list, as it was passed.
  nanobind::list listed() const;

 private:
  Buffer buffer_;
  nanobind::handle given_;
  nanobind::handle owner_;
  nanobind::object made_;  // returned by as_buffer
};

// A list of arrays that a caller passed. Anything else raises TypeError.
class Arrays {
 public:
  Arrays(nanobind::handle list, Access access, const char* name);

  const std::vector<Buffer>& buffers() const { return buffers_; }
  void view_as_real() {
    for (Buffer& buffer : buffers_) buffer = allhands::view_as_real(std::move(buffer));
  }
  std::size_t size() const { return buffers_.size(); }
  // Call once.
  std::vector<Buffer> take_buffers() { return std::move(buffers_); }
  nanobind::object owner() const { return nanobind::object(owners_); }
  // The list, as it was passed.
  nanobind::list listed() const { return nanobind::borrow<nanobind::list>(given_); }

 private:
  nanobind::object given_;
  std::vector<Buffer> buffers_;
  nanobind::tuple owners_;
};

// The items of a list, which live as long as the result. `name` is the parameter's.
// Throws TypeError for anything but a list.
nanobind::tuple items_of(nanobind::handle list, const char* name);

void bind_array(nanobind::module_& m);

}  // namespace allhands::python
