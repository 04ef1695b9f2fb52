// An array in the memory that the ranks of a group share: how it is made, and what
// keeps it.
//
// One piece of memory holds the arrays of all ranks (see SharedArrays). Only the ranks'
// SharedArray objects own it: no file system has a name for it. It outlives the group,
// and is freed when the last of these objects is gone, however the last process ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "allhands/arena/arena.hpp"
#include "allhands/base/dtype.hpp"
#include "allhands/base/shared_memory.hpp"
#include "allhands/base/wait.hpp"
#include "allhands/comm/bootstrap.hpp"
#include "allhands/host/membership.hpp"

namespace allhands {

// One rank's hold of a shared array. Thread-safe.
class SharedArray {
 public:
  SharedArray(std::shared_ptr<SharedMemory> memory,
              std::shared_ptr<SharedArrays> arrays, const SharedRegion& region);
  SharedArray(const SharedArray&) = delete;
  SharedArray& operator=(const SharedArray&) = delete;
  ~SharedArray();

  // This rank's own, zero at first.
  std::byte* data() const { return region_.part(region_.rank); }
  std::size_t num_bytes() const { return region_.bytes; }

 private:
  const std::shared_ptr<SharedMemory> memory_;
  const std::shared_ptr<SharedArrays> arrays_;
  const SharedRegion region_;
};

// The operation that makes a shared array, on every rank at once.
class SharedArrayMaker {
 public:
  // Throws Value if the size of the arrays in bytes overflows.
  SharedArrayMaker(const Membership& membership, const Token& token, DType dtype,
                   const std::vector<std::size_t>& shape);

  // What a rank cannot do is agreed on, so that the group works on; see result().
  const Descriptor& descriptor() const { return descriptor_; }

  // Runs it as the group's operation number `sequence`.
  void run(Arena& arena, std::uint64_t sequence, const Limits& limits);

  // The new array; call after run. If some ranks failed, throws Backend on every rank,
  // naming those ranks and why.
  std::shared_ptr<SharedArray> result() const;

 private:
  std::size_t total_bytes() const;
  void open(Arena& arena, const Limits& limits);
  void reserve(const Arena& arena) const;
  std::string failures(const Arena& arena) const;

  const Membership& membership_;
  const Token& token_;
  Descriptor descriptor_;
  std::size_t bytes_;   // of one rank's array
  std::size_t stride_;  // the same in whole pages
  Segment segment_;
  std::string failure_;
  std::shared_ptr<SharedArray> result_;
};

}  // namespace allhands
