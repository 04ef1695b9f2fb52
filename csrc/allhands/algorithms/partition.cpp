#include "allhands/algorithms/partition.hpp"

#include <algorithm>

namespace allhands {

Partition::Partition(std::span<const std::size_t> counts) {
  starts_.reserve(counts.size() + 1);
  starts_.push_back(0);
  for (const std::size_t count : counts) starts_.push_back(starts_.back() + count);
}

Partition Partition::even(std::size_t count, int size) {
  const auto parts = static_cast<std::size_t>(size);
  Partition partition;
  partition.starts_.reserve(parts + 1);
  for (std::size_t i = 0; i <= parts; ++i)
    partition.starts_.push_back(count / parts * i + std::min(i, count % parts));
  return partition;
}

Partition Partition::equal(std::size_t count, int size) {
  return even(count * static_cast<std::size_t>(size), size);
}

Partition Partition::chunks(std::size_t count, std::size_t most) {
  most = std::max<std::size_t>(most, 1);
  const std::size_t num = count / most + (count % most != 0 ? 1 : 0);
  return even(count, static_cast<int>(std::max<std::size_t>(num, 1)));
}

Partition Partition::rotated(int first) const {
  std::vector<std::size_t> counts;
  for (int i = 0; i < size(); ++i) counts.push_back(count((first + i) % size()));
  return Partition(counts);
}

std::size_t Partition::largest() const {
  std::size_t most = 0;
  for (int i = 0; i < size(); ++i) most = std::max(most, count(i));
  return most;
}

std::vector<Range> Partition::parts(Memory memory, int first, int num) const {
  const int end = first + num;
  if (end <= size()) return {{memory, at(first), at(end) - at(first)}};
  return {{memory, at(first), total() - at(first)}, {memory, 0, at(end - size())}};
}

}  // namespace allhands
