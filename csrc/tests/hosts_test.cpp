// Collectives of groups whose ranks are on several hosts.
#include "allhands/hosts/hosts.hpp"

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "allhands/arena/sparse.hpp"
#include "every_operation.hpp"
#include "fake_hosts.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

const std::vector<Hosting> kHostings =
    kIsSanitized
        ? std::vector<Hosting>{{0, 1}, {0, 1, 0, 2}}
        : std::vector<Hosting>{
              {0, 1},       {0, 0, 1, 1},    {0, 1, 0, 1},       {0, 0, 0, 0, 1, 2},
              {0, 1, 2},    {2, 0, 1, 1, 0}, {0, 1, 2, 3, 4, 5}, {0, 0, 0},
              {1, 1, 1, 0},
          };

void test_who_is_where() {
  const Hosts hosts(membership_on({7, 3, 7, 7, 3, 5, 7}, 2));
  CHECK(hosts.size() == 7 && hosts.num_hosts() == 3);
  CHECK(hosts.ranks(0) == (std::vector<int>{0, 2, 3, 6}));
  CHECK(hosts.ranks(1) == (std::vector<int>{1, 4}));
  CHECK(hosts.local_ranks() == hosts.ranks(0));
  CHECK(hosts.host() == 0 && hosts.host_of(5) == 2 && hosts.local_rank_of(6) == 3);
  CHECK(hosts.leader(2) == 5 && !hosts.is_leader());
  CHECK(hosts.num_slices() == 1);
  CHECK(hosts.is_local(6) && !hosts.is_local(4));
  CHECK(hosts.counterpart(1, 0) == 1 && hosts.counterpart(1, 3) == 4);
  CHECK(Hosts(membership_on({1, 1, 0, 0}, 3)).num_slices() == 2);
  CHECK(Hosts(membership_on({1, 1, 0, 0}, 2)).is_leader());
}

// Whether it is the same on one host, to the bit.
void check_same_bits(const Hosting& hosting, DType dtype, ReduceOp op,
                     const std::vector<std::size_t>& counts,
                     ReduceOrder order = ReduceOrder::Any) {
  const int size = static_cast<int>(hosting.size());
  std::vector<std::vector<std::unique_ptr<Call>>> expected(hosting.size());
  const auto make_call = [&](const Kind& kind, int rank, std::size_t count) {
    auto call = std::make_unique<Call>(dtype, rank);
    kind.make(*call, rank, size, count, op);
    call->operation.reduce_order = order;
    return call;
  };
  run_arenas(size, [&](Arena& arena) {
    for (const std::size_t count : counts)
      for (const Kind& kind : kKinds) {
        auto call = make_call(kind, arena.rank(), count);
        testing::call(arena, call->operation, soon());
        expected[static_cast<std::size_t>(arena.rank())].push_back(std::move(call));
      }
  });
  run_on_hosts(hosting, [&](HostRank& rank) {
    std::size_t i = 0;
    for (const std::size_t count : counts)
      for (const Kind& kind : kKinds) {
        const auto call = make_call(kind, rank.rank(), count);
        rank.run(call->operation);
        const auto& one = *expected[static_cast<std::size_t>(rank.rank())][i++];
        if (call->has_same_memory(one)) continue;
        std::fprintf(stderr, "%s of %zu %s on rank %d of %d\n", kind.name, count,
                     name_of(dtype), rank.rank(), size);
        CHECK(!"other bits than on one host");
      }
  });
}

void test_small_operations_have_the_bits_of_one_host() {
  for (const Hosting& hosting : kHostings) {
    check_same_bits(hosting, DType::Float32, ReduceOp::Sum, {0, 1, 5, 40});
    check_same_bits(hosting, DType::Float32, ReduceOp::Avg, {7, 150});
    check_same_bits(hosting, DType::Float32, ReduceOp::PremulSum, {3});
  }
  for (const DType dtype : {DType::Bool, DType::UInt8, DType::Int8, DType::Int16,
                            DType::Int32, DType::Int64, DType::Float16, DType::BFloat16,
                            DType::Float64, DType::Complex64, DType::Complex128})
    check_same_bits({0, 1, 0, 2, 2}, dtype, ReduceOp::Sum, {1, 9});
  check_same_bits({0, 1, 0}, DType::Int64, ReduceOp::PremulSum, {1, 9});
  check_same_bits({0, 1, 0}, DType::Int32, ReduceOp::Avg, {1, 9});
  check_same_bits({1, 0, 1, 0}, DType::UInt8, ReduceOp::BitXor, {1, 9});
  // What a host tells just fits into one message, or just does not.
  std::vector<std::size_t> counts = {std::size_t{16} << 10};
  for (std::size_t count = 17200; count <= 17400; count += 8)
    counts.insert(counts.end(), {count, count + 1});
  check_same_bits({0, 1}, DType::UInt8, ReduceOp::BitXor, counts);
}

// Hosts of several ranks reduce what they have first: another order, which exact
// operations do not show.
void test_large_operations_have_the_bits_of_one_host() {
  for (const Hosting& hosting : kHostings) {
    check_same_bits(hosting, DType::Int32, ReduceOp::Sum, {20011});
    if (hosting.size() > 4) continue;
    check_same_bits(hosting, DType::Float32, ReduceOp::Max, {20000});
    check_same_bits(hosting, DType::Int64, ReduceOp::PremulSum, {9000});
    check_same_bits(hosting, DType::Int16, ReduceOp::Avg, {40001});
  }
  for (const Hosting& hosting : {Hosting{0, 1}, Hosting{1, 2, 0}, Hosting{0, 1, 2, 3}})
    for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Avg})
      check_same_bits(hosting, DType::Float32, op, {30011});
  // More hosts than exchange all at once.
  for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Avg})
    check_same_bits({0, 1, 2, 3, 4, 5, 6, 7, 8}, DType::Float32, op, {3001});
}

// Wherever the ranks are, and whichever of them have much to do.
const std::vector<Hosting> kPlacements =
    kIsSanitized ? std::vector<Hosting>{{0, 0, 1}, {0, 1, 0, 2, 1}}
                 : std::vector<Hosting>{
                       {0, 1},
                       {0, 0, 1},
                       {0, 1, 0},
                       {0, 1, 2},
                       {0, 0, 1, 1, 1},
                       {0, 1, 0, 2, 1},
                       {3, 0, 0, 0, 0},
                       {0, 0, 0, 0, 1, 1, 1, 1},
                       {0, 1, 0, 1, 0, 1, 0, 1},
                       {0, 0, 1, 2, 2, 2, 0, 3},
                       {0, 1, 2, 3, 4, 5, 6, 7},
                   };

void test_rank_order_has_the_bits_of_one_host() {
  for (const Hosting& hosting : kPlacements) {
    const auto check = [&](DType dtype, ReduceOp op, std::size_t count) {
      check_same_bits(hosting, dtype, op, {count}, ReduceOrder::Rank);
    };
    check(DType::Float16, ReduceOp::PremulSum, 20001);
    check(DType::Float32, ReduceOp::Sum, 3);
    if (kIsSanitized) continue;
    for (const ReduceOp op :
         {ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Product, ReduceOp::PremulSum}) {
      check(DType::Float32, op, 20011);
      check(DType::Float16, op, 20001);
      check(DType::Complex64, op, 9001);
    }
    for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::PremulSum}) {
      check(DType::BFloat16, op, 20003);
      check(DType::Float64, op, 10007);
      check(DType::Complex128, op, 5003);
      check(DType::Int8, op, 40001);
    }
    check(DType::Float32, ReduceOp::Min, 20011);
    check(DType::Int32, ReduceOp::Avg, 20011);
    check(DType::Bool, ReduceOp::Sum, 40001);
  }
}

// Else the test above would show nothing.
void test_hosts_that_reduce_first_have_other_bits() {
  std::vector<std::vector<float>> sums;
  for (const ReduceOrder order : {ReduceOrder::Any, ReduceOrder::Rank}) {
    std::vector<float> sum(30000);
    run_on_hosts({0, 1, 0, 1}, [&](HostRank& rank) {
      Call call(DType::Float32, rank.rank());
      const Buffer array = call.array(sum.size());
      call.operation = all_reduce(array, array, ReduceOp::Sum, 1);
      call.operation.reduce_order = order;
      rank.run(call.operation);
      if (rank.rank() == 0) std::memcpy(sum.data(), array.data, array.num_bytes());
    });
    sums.push_back(std::move(sum));
  }
  CHECK(sums[0] != sums[1]);
}

// Rank r has rows r, r + 1 and 7 of `width` numbers.
void test_sparse_sums_in_rank_order(const Hosting& hosting, std::size_t width) {
  const int size = static_cast<int>(hosting.size());
  std::vector<float> expected;
  const auto sum = [&](int rank, auto run) {
    const std::vector<std::int64_t> rows = {rank, rank + 1, 20};
    Call values(DType::Float32, rank);
    SparseArray array = {.indices = rows,
                         .values = values.array(3 * width),
                         .num_rows = 21,
                         .width = width};
    run(Operation{.collective = &kAllReduceSparse,
                  .reduce_order = ReduceOrder::Rank,
                  .sparse = &array});
    std::vector<float> sums(array.all_indices.size() * width);
    std::memcpy(sums.data(), array.sums.get(), array.sums_bytes());
    return sums;
  };
  run_arenas(size, [&](Arena& arena) {
    auto sums = sum(arena.rank(), [&](const Operation& operation) {
      testing::call(arena, operation, soon());
    });
    if (arena.rank() == 0) expected = std::move(sums);
  });
  run_on_hosts(hosting, [&](HostRank& rank) {
    CHECK(sum(rank.rank(), [&](const Operation& operation) { rank.run(operation); }) ==
          expected);
  });
}

void test_other_orders_are_a_mismatch(std::size_t count) {
  run_on_hosts({0, 1, 0, 1}, [&](HostRank& rank) {
    std::vector<float> data(count, 1);
    Operation operation =
        all_reduce(buffer_of(data), buffer_of(data), ReduceOp::Sum, 1);
    if (rank.rank() == 2) operation.reduce_order = ReduceOrder::Rank;
    const Error error = error_of([&] { rank.run(operation); });
    CHECK(error.kind() == ErrorKind::Mismatch);
    CHECK(has(error, "rank 2" + std::string(rank.rank() == 2 ? " (this process)" : "") +
                         ": all_reduce(float32, count " + std::to_string(count) +
                         ", SUM in rank order)"));
    CHECK(data == std::vector<float>(count, 1));
    operation.reduce_order = ReduceOrder::Rank;
    rank.run(operation);
    CHECK(data == std::vector<float>(count, 4));
  });
}

// Rank r sends r + 1 elements, times `factor`, to each rank after it and none to those
// before, from arrays that ranks of one host could not read.
void test_all_to_all_of_uneven_shares(const Hosting& hosting, std::size_t factor) {
  run_on_hosts(hosting, [&](HostRank& rank) {
    const auto count = [&](int from, int to) {
      return to < from ? 0 : factor * static_cast<std::size_t>(from + 1);
    };
    std::vector<std::size_t> sends, expects;
    for (int peer = 0; peer < rank.size(); ++peer) {
      sends.push_back(count(rank.rank(), peer));
      expects.push_back(count(peer, rank.rank()));
    }
    std::vector<float> input(static_cast<std::size_t>(rank.size()) * count(5, 5));
    std::vector<float> output(input.size(), -1);
    std::fill(input.begin(), input.end(), static_cast<float>(rank.rank()));
    rank.run(all_to_all(cut(output, expects), cut(input, sends)));
    std::size_t at = 0;
    for (int from = 0; from < rank.size(); ++from)
      for (std::size_t i = 0; i < expects[static_cast<std::size_t>(from)]; ++i)
        CHECK(output[at++] == static_cast<float>(from));
    CHECK(at == output.size() || output[at] == -1);
  });
}

void test_all_to_all_over_its_input(std::size_t count) {
  run_on_hosts({0, 1, 1}, [&](HostRank& rank) {
    std::vector<float> data(3 * count);
    for (std::size_t i = 0; i < data.size(); ++i)
      data[i] = static_cast<float>(10 * rank.rank()) + static_cast<float>(i / count);
    const auto parts = cut(data, {count, count, count});
    const auto reversed = std::vector<Buffer>{parts[2], parts[1], parts[0]};
    rank.run(all_to_all(reversed, parts));
    for (std::size_t i = 0; i < data.size(); ++i)
      CHECK(data[i] ==
            static_cast<float>(10 * (2 - i / count)) + static_cast<float>(rank.rank()));
  });
}

void test_disagreeing_shares_are_named_on_every_rank() {
  run_on_hosts({0, 1, 0, 1}, [](HostRank& rank) {
    std::vector<float> input(8, 1), output(8, -1);
    const std::size_t sent = rank.rank() == 2 ? 3 : 2;
    const Error error = error_of([&] {
      rank.run(all_to_all(cut(output, {2, 2, 2, 2}), cut(input, {2, sent, 2, 1})));
    });
    CHECK(error.kind() == ErrorKind::Mismatch);
    CHECK(has(error, "rank 2 sends 3 elements to rank 1, which expects 2"));
    CHECK(has(error, "rank 0 sends 1 elements to rank 3, which expects 2"));
    CHECK(output == std::vector<float>(8, -1));
    rank.run(all_to_all(cut(output, {2, 2, 2, 2}), cut(input, {2, 2, 2, 2})));
    CHECK(output == std::vector<float>(8, 1));
  });
}

// Rank r has rows r, r + 1 and 7.
void test_sparse_arrays(std::size_t width) {
  run_on_hosts({0, 1, 0, 2}, [&](HostRank& rank) {
    const std::vector<std::int64_t> rows = {rank.rank(), rank.rank() + 1, 7};
    std::vector<float> values(3 * width, static_cast<float>(rank.rank() + 1));
    SparseArray array = {
        .indices = rows, .values = buffer_of(values), .num_rows = 9, .width = width};
    rank.run({.collective = &kAllReduceSparse, .sparse = &array});
    CHECK(array.all_indices == (Indices{0, 1, 2, 3, 4, 7}));
    const float expected[] = {1, 1 + 2, 2 + 3, 3 + 4, 4, 1 + 2 + 3 + 4};
    const auto* const sums = reinterpret_cast<const float*>(array.sums.get());
    for (std::size_t i = 0; i < 6 * width; ++i) CHECK(sums[i] == expected[i / width]);
  });
}

// Whatever the order, all ranks get the same, and nothing far from the sum.
void test_large_sums_of_floats_are_alike() {
  for (const Hosting& hosting : kHostings)
    for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Avg, ReduceOp::PremulSum}) {
      const std::size_t count = 20001;
      std::vector<std::vector<float>> results(hosting.size());
      run_on_hosts(hosting, [&](HostRank& rank) {
        std::vector<float> data(count);
        for (std::size_t i = 0; i < count; ++i)
          data[i] =
              1.0f / static_cast<float>(i % 97 + 1) + 0.1f * value(rank.rank(), i);
        rank.run(all_reduce(buffer_of(data), buffer_of(data), op, 0.7));
        results[static_cast<std::size_t>(rank.rank())] = std::move(data);
      });
      const auto n = static_cast<double>(hosting.size());
      for (std::size_t i = 0; i < count; ++i) {
        double sum = 0;
        for (int rank = 0; rank < static_cast<int>(n); ++rank)
          sum += 1.0 / static_cast<double>(i % 97 + 1) + 0.1 * value(rank, i);
        if (op == ReduceOp::Avg) sum /= n;
        if (op == ReduceOp::PremulSum) sum *= 0.7;
        CHECK(std::abs(results[0][i] - sum) < 1e-5 * sum);
      }
      for (const auto& result : results) CHECK(result == results[0]);
    }
}

void test_bytes_of_many_chunks() {
  run_on_hosts({0, 0, 1, 1, 1}, 4096, [](HostRank& rank) {
    std::vector<float> mine = values(rank.rank(), 3000), all(5 * 3000);
    rank.run(all_gather(cut(all, std::vector<std::size_t>(5, 3000)), buffer_of(mine)));
    for (int from = 0; from < 5; ++from)
      CHECK(are_values(
          from, std::span(all).subspan(static_cast<std::size_t>(from) * 3000, 3000)));
  });
}

// `odd` calls something else than the others.
void test_a_mismatch_is_known_to_all(const Hosting& hosting, int odd) {
  run_on_hosts(hosting, [&](HostRank& rank) {
    for (int round = 0; round < 3; ++round) {
      std::vector<float> data(30, static_cast<float>(rank.rank()));
      const Buffer buffer = buffer_of(data);
      const bool is_odd = rank.rank() == odd;
      const Error error = error_of([&] {
        rank.run(is_odd ? broadcast(buffer, 1)
                        : all_reduce(buffer, buffer, ReduceOp::Sum, 1));
      });
      CHECK(error.kind() == ErrorKind::Mismatch);
      std::vector<int> others;
      for (int peer = 0; peer < rank.size(); ++peer)
        if ((peer == odd) != is_odd) others.push_back(peer);
      CHECK(error.ranks() == others);
      const std::string who = "rank " + std::to_string(odd);
      CHECK(
          has(error, who + (is_odd ? " (this process)" : "") + ": broadcast(float32"));
      CHECK(has(error, ": all_reduce(float32, count 30, SUM)"));
      CHECK(has(error, "as operation #" + std::to_string(2 * round + 1)));
      CHECK(data == std::vector<float>(30, static_cast<float>(rank.rank())));
      rank.run(all_reduce(buffer, buffer, ReduceOp::Max, 1));
      CHECK(data == std::vector<float>(30, static_cast<float>(rank.size() - 1)));
    }
  });
}

void test_other_sizes_are_a_mismatch() {
  run_on_hosts({0, 1, 0, 1}, [](HostRank& rank) {
    std::vector<float> data(100000, 1);
    const Buffer buffer = buffer_of(data).slice(0, rank.rank() == 3 ? 100000 : 10);
    const Error error =
        error_of([&] { rank.run(all_reduce(buffer, buffer, ReduceOp::Sum, 1)); });
    CHECK(error.kind() == ErrorKind::Mismatch);
    CHECK(has(error, ": all_reduce(float32, count 100000, SUM)"));
    rank.run(barrier());
  });
}

// What collectives tell and what programs send go beside each other.
void test_messages_of_the_program_are_left_alone() {
  run_on_hosts({0, 1}, [](HostRank& rank) {
    std::vector<float> mine = {static_cast<float>(rank.rank())}, theirs = {-1};
    const int peer = 1 - rank.rank();
    for (int tag = 0; tag < 5; ++tag)
      rank.engine().send(buffer_of(mine), peer, tag, soon());
    rank.run(all_reduce(buffer_of(mine), buffer_of(mine), ReduceOp::Sum, 1));
    CHECK(mine[0] == 1);
    for (int tag = 4; tag >= 0; --tag) {
      CHECK(rank.engine().recv(buffer_of(theirs), kAnySource, tag, soon()) == peer);
      CHECK(theirs[0] == static_cast<float>(peer));
    }
  });
}

}  // namespace

int main() {
  test_who_is_where();
  test_small_operations_have_the_bits_of_one_host();
  test_large_operations_have_the_bits_of_one_host();
  test_rank_order_has_the_bits_of_one_host();
  test_hosts_that_reduce_first_have_other_bits();
  test_sparse_sums_in_rank_order({0, 1, 0, 2, 1}, 7);
  test_sparse_sums_in_rank_order({0, 1, 0, 2, 1}, 9000);
  test_other_orders_are_a_mismatch(10);
  test_other_orders_are_a_mismatch(100000);
  for (const Hosting& hosting : kHostings) {
    test_all_to_all_of_uneven_shares(hosting, 3);
    test_all_to_all_of_uneven_shares(hosting, 9000);
  }
  test_all_to_all_over_its_input(3);
  test_all_to_all_over_its_input(20000);
  test_disagreeing_shares_are_named_on_every_rank();
  test_sparse_arrays(1);
  test_sparse_arrays(5000);
  test_large_sums_of_floats_are_alike();
  test_bytes_of_many_chunks();
  test_a_mismatch_is_known_to_all({0, 1}, 1);
  test_a_mismatch_is_known_to_all({0, 0, 1, 1}, 3);
  test_a_mismatch_is_known_to_all({0, 1, 0, 2}, 0);
  test_a_mismatch_is_known_to_all({0, 1, 0, 2}, 2);
  test_a_mismatch_is_known_to_all({0, 1, 2}, 1);
  test_other_sizes_are_a_mismatch();
  test_messages_of_the_program_are_left_alone();
}
