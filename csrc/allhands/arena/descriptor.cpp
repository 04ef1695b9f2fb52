#include "allhands/arena/descriptor.hpp"

#include <algorithm>

#include "allhands/arena/collectives.hpp"

namespace allhands {

const char* name_of(Op op) {
  if (op == Op::EmptyShared) return "empty_shared";
  const Collective* collective = collective_of(op);
  return collective == nullptr ? "nothing" : collective->name;
}

std::uint64_t digest_of_counts(const std::vector<Buffer>& list) {
  const auto differ = [](const Buffer& a, const Buffer& b) {
    return a.count != b.count;
  };
  if (std::adjacent_find(list.begin(), list.end(), differ) == list.end()) return 0;
  std::uint64_t digest = 14695981039346656037u;  // FNV-1a, a word at a time
  for (const Buffer& buffer : list) digest = (digest ^ buffer.count) * 1099511628211u;
  return digest >> 1 | 1;  // not 0, and no list's
}

std::string describe(const Descriptor& descriptor) {
  const Op op = descriptor.op;
  std::string text = name_of(op);
  if (op == Op::Barrier) return text + "()";
  const bool is_sparse = op == Op::AllReduceSparse;
  text += std::string(is_sparse ? "(sparse " : "(") + name_of(descriptor.dtype);
  if (op != Op::AllToAll) text += ", count " + std::to_string(descriptor.count);
  if (is_sparse)
    text += " in rows of " + std::to_string(descriptor.shares);
  else if (descriptor.is_list())
    text += " in a list of " + std::to_string(descriptor.length());
  else if (descriptor.shares != 0)
    text += " in uneven shares";
  const Collective* collective = collective_of(op);
  if (collective != nullptr && collective->is_reduction)
    text += std::string(", ") + name_of(descriptor.reduce_op) +
            (descriptor.reduce_order == ReduceOrder::Rank ? " in rank order" : "");
  if (descriptor.root >= 0) text += ", root " + std::to_string(descriptor.root);
  return text + ")";
}

}  // namespace allhands
