#include "allhands/arena/checks.hpp"

#include <algorithm>
#include <cctype>
#include <functional>
#include <string>
#include <tuple>

#include "allhands/arena/collectives.hpp"
#include "allhands/base/error.hpp"
#include "allhands/kernels/reduce.hpp"

namespace allhands {

namespace {

// Whether `next` begins behind `buffer`: at its end or later if `buffer` is contiguous,
// else after its beginning.
bool is_behind(const Buffer& buffer, const Buffer& next) {
  const auto* begin = static_cast<const std::byte*>(buffer.data);
  const std::size_t extent = buffer.is_contiguous() ? buffer.num_bytes() : 0;
  const std::less<> less;
  if (next.data == buffer.data && extent == 0) return buffer.first < next.first;
  return less(begin, next.data) && !less(next.data, begin + extent);
}

}  // namespace

void check_reduction(const Operation& operation, DType dtype) {
  check_supported(operation.collective->name, dtype, operation.reduce_op);
  if (operation.reduce_op == ReduceOp::PremulSum) check_factor(dtype, operation.factor);
}

void check_root(const Operation& operation, int size) {
  const int root = operation.root;
  if (root < 0 || root >= size)
    throw Error(ErrorKind::Unsupported,
                std::string(operation.collective->name) +
                    ": invalid root rank: " + std::to_string(root) +
                    "; it must be in [0, " + std::to_string(size) + ")");
}

void check_dtype(const Buffer& buffer, DType expected) {
  if (buffer.dtype != expected)
    throw Error(ErrorKind::Value,
                std::string("Invalid usage of tensors with different dtypes: found ") +
                    name_of(expected) + " and " + name_of(buffer.dtype) +
                    "; convert one of them");
}

void check_count(const Operation& operation, const char* which, const Buffer& buffer,
                 std::size_t expected, int index) {
  if (buffer.count != expected)
    throw Error(ErrorKind::Value,
                std::string(operation.collective->name) + ": " + which +
                    (index < 0 ? "" : " " + std::to_string(index)) + " has " +
                    std::to_string(buffer.count) + " elements, expected " +
                    std::to_string(expected) +
                    "; invalid tensor size, the sizes must match");
}

void check_list(const Operation& operation, const char* which,
                const std::vector<Buffer>& list, int size, DType dtype) {
  if (list.size() != static_cast<std::size_t>(size)) {
    const std::string expected = std::to_string(size),
                      got = std::to_string(list.size());
    std::string begin = which;
    begin[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(begin[0])));
    throw Error(ErrorKind::Unsupported,
                std::string(operation.collective->name) + ": invalid " + which +
                    " tensor list at index 0 (expected length " + expected + ", got " +
                    got + "): Incorrect " + which + " list size " + got + ". " + begin +
                    " list size should be " + expected +
                    ", same as size of the process group");
  }
  for (const Buffer& buffer : list) check_dtype(buffer, dtype);
}

void check_list_of_root(const Operation& operation, const char* which,
                        const std::vector<Buffer>& list, int rank, int size,
                        const Buffer& one) {
  if (rank != operation.root) {
    if (!list.empty())
      throw Error(ErrorKind::Value, std::string(operation.collective->name) + ": " +
                                        which + " list on rank " +
                                        std::to_string(rank) +
                                        "; only the root has one, rank " +
                                        std::to_string(operation.root));
    return;
  }
  check_list(operation, which, list, size, one.dtype);
  for (std::size_t i = 0; i < list.size(); ++i)
    check_count(operation, which, list[i], one.count, static_cast<int>(i));
}

void check_apart(const char* what, const std::vector<Buffer>& list) {
  const auto is_apart = [&](std::size_t i, std::size_t j) {
    return list[i].count == 0 || list[j].count == 0 || is_behind(list[i], list[j]);
  };
  std::size_t num_ascending = 1;
  while (num_ascending < list.size() && is_apart(num_ascending - 1, num_ascending))
    ++num_ascending;
  if (num_ascending >= list.size()) return;  // nearly always
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < list.size(); ++i)
    if (list[i].count > 0) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) {
    return std::tie(list[i].data, list[i].first) <
           std::tie(list[j].data, list[j].first);
  });
  for (std::size_t k = 1; k < order.size(); ++k)
    if (!is_apart(order[k - 1], order[k]))
      throw Error(ErrorKind::Value,
                  std::string(what) + "s " +
                      std::to_string(std::min(order[k - 1], order[k])) + " and " +
                      std::to_string(std::max(order[k - 1], order[k])) +
                      " share memory; each needs its own");
}

}  // namespace allhands
