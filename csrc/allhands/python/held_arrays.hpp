// The arrays of a persistent request, whose memory must stay where it was.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <vector>

namespace allhands::python {

// The memory of an array: that of its elements, or for a tensor all of its storage from
// its first element on.
struct ArrayMemory {
  const void* data;
  std::size_t bytes;
};

// Notices that a program has resized an array, or given it other memory. Knows only
// arrays of NumPy and tensors of registered types.
class HeldArrays {
 public:
  // `arrays`: an array, a PyBuffer, or a list or tuple of these, also nested. It must
  // outlive this object.
  explicit HeldArrays(nanobind::handle arrays) { add(arrays); }

  // Whether each array still has the memory that it had at first.
  bool are_unchanged() const;

 private:
  struct Held {
    nanobind::handle array;
    ArrayMemory memory;
  };

  void add(nanobind::handle arrays);

  std::vector<Held> held_;
};

}  // namespace allhands::python
