#include "allhands/python/pieces.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "allhands/base/error.hpp"
#include "allhands/base/joined.hpp"
#include "allhands/python/buffer.hpp"

namespace nb = nanobind;

namespace allhands::python {
namespace {

using Sizes = std::vector<std::int64_t>;

std::int64_t num_rows_of(const char* operation, const char* name, nb::handle array) {
  if (nb::isinstance<PyBuffer>(array))
    return static_cast<std::int64_t>(nb::cast<const PyBuffer&>(array).length());
  const Py_ssize_t length = PyObject_Size(array.ptr());
  if (length >= 0) return length;
  PyErr_Clear();
  throw Error(ErrorKind::Unsupported,
              std::string(operation) + ": " + name +
                  " has no dimensions, so it cannot be split in rows; pass an array "
                  "with at least one");
}

Sizes sizes_of(const char* name, nb::handle given) {
  Sizes sizes;
  if (given.is_none() || nb::try_cast(given, sizes)) return sizes;
  throw Error(ErrorKind::Type, name + ("_split_sizes must be a sequence of integers, "
                                       "got " +
                                       nb::cast<std::string>(nb::repr(given))));
}

void check_sizes(const char* operation, const char* name, const Sizes& sizes,
                 std::int64_t num_rows, std::size_t num_ranks) {
  const std::string subject = name + std::string("_split_sizes of ") + operation;
  if (sizes.size() != num_ranks)
    throw Error(ErrorKind::Unsupported,
                "Number of tensor splits not equal to group size: " + subject +
                    " has " + std::to_string(sizes.size()) + " sizes, expected " +
                    std::to_string(num_ranks));
  const std::int64_t sum = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  if (sum != num_rows || *std::min_element(sizes.begin(), sizes.end()) < 0)
    throw Error(ErrorKind::Unsupported,
                "Split sizes doesn't match total dim 0 size: " + subject + " has [" +
                    joined(sizes) + "] for " + std::to_string(num_rows) + " rows");
}

}  // namespace

std::vector<Buffer> shares(const char* operation, const char* name, const Buffer& whole,
                           const Buffer& part, int num_ranks) {
  const auto n = static_cast<std::size_t>(num_ranks);
  if (whole.count != part.count * n)
    throw Error(ErrorKind::Value, std::string(operation) + ": " + name + " has " +
                                      std::to_string(whole.count) +
                                      " elements, expected " +
                                      std::to_string(part.count * n) +
                                      "; invalid tensor size, the sizes must match");
  std::vector<Buffer> result;
  result.reserve(n);
  for (std::size_t rank = 0; rank < n; ++rank)
    result.push_back(whole.slice(rank * part.count, part.count));
  return result;
}

std::vector<Buffer> rows(const char* operation, const char* name, nb::handle given,
                         const Buffer& array, nb::handle sizes, int num_ranks) {
  const auto n = static_cast<std::size_t>(num_ranks);
  const std::int64_t num_rows = num_rows_of(operation, name, given);
  const Sizes splits = sizes_of(name, sizes);
  const bool is_even = splits.empty();
  if (!is_even)
    check_sizes(operation, name, splits, num_rows, n);
  else if (num_rows % num_ranks != 0)
    throw Error(ErrorKind::Unsupported,
                std::string(operation) + ": " + name + ": dim 0 of size " +
                    std::to_string(num_rows) + " does not divide equally across " +
                    std::to_string(num_ranks) + " ranks; pass " + name +
                    "_split_sizes");
  const std::size_t row =
      num_rows == 0 ? 0 : array.count / static_cast<std::size_t>(num_rows);
  std::vector<Buffer> result;
  result.reserve(n);
  std::size_t at = 0;
  for (std::size_t rank = 0; rank < n; ++rank) {
    const std::int64_t size = is_even ? num_rows / num_ranks : splits[rank];
    const std::size_t count = static_cast<std::size_t>(size) * row;
    result.push_back(array.slice(at, count));
    at += count;
  }
  return result;
}

}  // namespace allhands::python
