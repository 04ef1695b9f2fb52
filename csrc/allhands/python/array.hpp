// How arrays of any library become Buffers, for every operation alike.
//
// The usual array is read on the spot, without memory taken or Python run: a plain
// numpy.ndarray as the struct that it is, tensors of registered types through C
// interfaces of their library (tensor.hpp). All else, and all that has to be refused,
// goes to allhands.arrays.as_buffer.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>
#include <vector>

#include "allhands/base/buffer.hpp"

namespace allhands::python {

// What an operation does with an array, which a read-only one may refuse.
enum class Access { Read, Write };

// An array that a caller passed. Its memory lives as long as `owner()`.
class Array {
 public:
  // `name`: of the parameter, for messages.
  Array(nanobind::handle array, Access access, const char* name);

  const Buffer& buffer() const { return buffer_; }
  nanobind::object owner() const { return nanobind::borrow(owner_); }
  // Complex numbers as twice as many real ones, from now on.
  void view_as_real() { buffer_ = allhands::view_as_real(std::move(buffer_)); }
  // As the only array of a list, the way it was passed.
  nanobind::list listed() const;

 private:
  Buffer buffer_;
  nanobind::handle given_;
  nanobind::handle owner_;
  nanobind::object made_;  // what as_buffer made
};

// A list of arrays that a caller passed; anything else is a TypeError.
class Arrays {
 public:
  Arrays(nanobind::handle list, Access access, const char* name);

  const std::vector<Buffer>& buffers() const { return buffers_; }
  void view_as_real() {
    for (Buffer& buffer : buffers_) buffer = allhands::view_as_real(std::move(buffer));
  }
  std::size_t size() const { return buffers_.size(); }
  // Once.
  std::vector<Buffer> take_buffers() { return std::move(buffers_); }
  nanobind::object owner() const { return nanobind::object(owners_); }
  // The list, as it was passed.
  nanobind::list listed() const { return nanobind::borrow<nanobind::list>(given_); }

 private:
  nanobind::object given_;
  std::vector<Buffer> buffers_;
  nanobind::tuple owners_;
};

// The items of a list, as long as the result lives. `name`: of the parameter. Throws
// TypeError for anything else.
nanobind::tuple items_of(nanobind::handle list, const char* name);

}  // namespace allhands::python
