// Operations on several hosts that go in several blocks or pieces, and the memory that
// they keep.
#include <numeric>
#include <vector>

#include "allhands/hosts/kept_memory.hpp"
#include "fake_hosts.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

// More than a block of 4 MiB, and more than 8 pieces of 256 KiB for each rank.
constexpr std::size_t kCount = 2'500'003;

const std::vector<Hosting> kHostings =
    kIsSanitized ? std::vector<Hosting>{{0, 1, 1}}
                 : std::vector<Hosting>{{0, 1}, {0, 0, 1, 1}, {0, 1, 2}, {0, 1, 1}};

float sum_at(int size, std::size_t i) {
  float sum = 0;
  for (int rank = 0; rank < size; ++rank) sum += value(rank, i);
  return sum;
}

// Every second element of an array.
Buffer strided(std::vector<float>& data) {
  Buffer buffer = buffer_of(data);
  buffer.count = data.size() / 2;
  buffer.dimensions = {
      {static_cast<std::int64_t>(buffer.count), std::int64_t{2 * sizeof(float)}}};
  return buffer;
}

void test_all_reduce_of_lists(const Hosting& hosting) {
  run_on_hosts(hosting, [](HostRank& rank) {
    const std::vector<std::size_t> counts = {1'000'001, 0, 3, kCount - 1'000'004};
    std::vector<float> data = values(rank.rank(), kCount), wide(200'000, -1);
    for (std::size_t i = 0; i < wide.size(); i += 2)
      wide[i] = value(rank.rank(), i / 2);
    std::vector<Buffer> list = cut(data, counts);
    list.push_back(strided(wide));
    rank.run(all_reduce_coalesced(list));
    for (std::size_t i = 0; i < kCount; ++i) CHECK(data[i] == sum_at(rank.size(), i));
    for (std::size_t i = 0; i < wide.size(); i += 2) {
      CHECK(wide[i] == sum_at(rank.size(), i / 2));
      CHECK(wide[i + 1] == -1);
    }
  });
}

// Of one rank only: the others have arrays of their own.
void test_a_list_may_share_memory(const Hosting& hosting) {
  run_on_hosts(hosting, [](HostRank& rank) {
    const bool shares = rank.rank() == 1;
    constexpr std::size_t kLength = 1'500'000, kShift = 1'200'000;
    std::vector<float> data(shares ? kLength + kShift : 3 * kLength, 1);
    const Buffer all = buffer_of(data);
    const std::size_t step = shares ? kShift : 2 * kLength;
    rank.run(all_reduce_coalesced(
        {all.slice(0, kLength), all.slice(step, kLength), all.slice(0, kLength)}));
    for (std::size_t i = 0; i < kLength; ++i) {
      CHECK(data[i] == static_cast<float>(rank.size()));
      CHECK(data[step + i] == static_cast<float>(rank.size()));
    }
  });
}

void test_lists_for_each_rank(const Hosting& hosting) {
  run_on_hosts(hosting, [](HostRank& rank) {
    const std::vector<std::size_t> counts = {700'001, 0, 3, 650'000};
    const std::size_t total = std::reduce(counts.begin(), counts.end());
    std::vector<std::size_t> counts_of_all;
    for (int i = 0; i < rank.size(); ++i)
      counts_of_all.insert(counts_of_all.end(), counts.begin(), counts.end());
    std::vector<float> mine = values(rank.rank(), total);
    std::vector<float> all(total * static_cast<std::size_t>(rank.size()), -1);
    rank.run(all_gather_coalesced(cut(all, counts_of_all), cut(mine, counts)));
    for (int i = 0; i < rank.size(); ++i)
      CHECK(are_values(
          i, std::span(all).subspan(static_cast<std::size_t>(i) * total, total)));
    rank.run(reduce_scatter_coalesced(cut(mine, counts), cut(all, counts_of_all)));
    for (std::size_t i = 0; i < total; ++i)
      CHECK(mine[i] == static_cast<float>(rank.size()) * value(rank.rank(), i));
  });
}

void test_reduce_writes_only_the_roots_array(const Hosting& hosting) {
  run_on_hosts(hosting, [](HostRank& rank) {
    for (int root = 0; root < rank.size(); ++root)
      for (const ReduceOrder order : {ReduceOrder::Any, ReduceOrder::Rank}) {
        std::vector<float> data = values(rank.rank(), kCount);
        Operation operation = reduce(buffer_of(data), root, ReduceOp::Sum, 1);
        operation.reduce_order = order;
        rank.run(operation);
        if (rank.rank() != root) {
          CHECK(are_values(rank.rank(), data));
          continue;
        }
        for (std::size_t i = 0; i < kCount; ++i)
          CHECK(data[i] == sum_at(rank.size(), i));
      }
  });
}

// Rank 0 gets nothing, and the ranks after it more and more.
void test_reduce_scatter_of_uneven_parts(const Hosting& hosting) {
  run_on_hosts(hosting, [](HostRank& rank) {
    std::vector<std::size_t> counts;
    for (int i = 0; i < rank.size(); ++i)
      counts.push_back(static_cast<std::size_t>(i) * 900'001);
    std::vector<float> data =
        values(rank.rank(), std::reduce(counts.begin(), counts.end()));
    const std::vector<Buffer> parts = cut(data, counts);
    const auto self = static_cast<std::size_t>(rank.rank());
    std::vector<float> wide(2 * counts[self], -1);
    const Buffer output = rank.rank() == 1 ? parts[self] : strided(wide);
    rank.run(reduce_scatter(output, parts, ReduceOp::Sum, 1));
    const auto before = static_cast<std::size_t>(
        std::reduce(counts.begin(), counts.begin() + rank.rank()));
    for (std::size_t i = 0; i < counts[self]; ++i)
      CHECK((rank.rank() == 1 ? data[before + i] : wide[2 * i]) ==
            sum_at(rank.size(), before + i));
  });
}

void test_memory_is_kept_up_to_a_limit() {
  KeptMemory memory;
  const std::byte* first = nullptr;
  {
    const KeptMemory::Loan small = memory.lend(1000), large = memory.lend(5000);
    first = large.data();
    CHECK(memory.num_bytes() == 0);
  }
  CHECK(memory.num_bytes() == 6000);
  {
    const KeptMemory::Loan loan = memory.lend(3000);
    CHECK(loan.data() == first);
    CHECK(memory.num_bytes() == 1000);
    const KeptMemory::Loan other = memory.lend(3000);  // the small block is replaced
    CHECK(memory.num_bytes() == 0);
  }
  CHECK(memory.num_bytes() == 8000);
  {
    const KeptMemory::Loan huge = memory.lend(KeptMemory::kMostBytes + 1);
  }
  CHECK(memory.num_bytes() == 8000);
}

}  // namespace

int main() {
  for (const Hosting& hosting : kHostings) {
    test_all_reduce_of_lists(hosting);
    test_a_list_may_share_memory(hosting);
    test_lists_for_each_rank(hosting);
    test_reduce_writes_only_the_roots_array(hosting);
    test_reduce_scatter_of_uneven_parts(hosting);
  }
  test_memory_is_kept_up_to_a_limit();
}
