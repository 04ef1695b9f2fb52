// Many ranks, which meet in a tree: its shape for any places, and that operations do
// there what they do among few.
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "allhands/arena/meeting_tree.hpp"
#include "allhands/host/place.hpp"
#include "ranks.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

using Places = std::vector<Place>;

Places nowhere(int size) { return Places(static_cast<std::size_t>(size)); }

// Rank after rank to the next cache, as a launcher that spreads them does; or the first
// cache full, then the next.
Places host(int size, int sockets, int caches_each, bool is_spread) {
  Places places;
  const int caches = sockets * caches_each;
  const int per_cache = (size + caches - 1) / caches;
  for (int rank = 0; rank < size; ++rank) {
    const int cache = is_spread ? rank % caches : rank / per_cache;
    places.push_back({static_cast<std::uint16_t>(cache / caches_each + 1),
                      static_cast<std::uint16_t>(cache + 1)});
  }
  return places;
}

int ranks_below(const MeetingTree& tree, int rank, std::set<int>& seen) {
  CHECK(seen.insert(rank).second);
  int depth = 0;
  for (const int child : tree.children(rank)) {
    CHECK(tree.parent(child) == rank);
    depth = std::max(depth, 1 + ranks_below(tree, child, seen));
  }
  return depth;
}

void test_all_ranks_are_in_the_tree_once(const Places& places) {
  const MeetingTree tree(places);
  std::set<int> seen;
  const int depth = ranks_below(tree, tree.top(), seen);
  CHECK(seen.size() == places.size());
  CHECK(tree.parent(tree.top()) == -1);
  CHECK(depth <= 6);
}

// Between two caches goes the word of one rank of each, between two sockets likewise.
void test_few_edges_leave_a_cache(const Places& places, int caches, int sockets) {
  const MeetingTree tree(places);
  int between_caches = 0, between_sockets = 0;
  for (int rank = 0; rank < static_cast<int>(places.size()); ++rank) {
    if (tree.parent(rank) < 0) continue;
    const Place here = places[static_cast<std::size_t>(rank)];
    const Place there = places[static_cast<std::size_t>(tree.parent(rank))];
    between_caches += here != there;
    between_sockets += here.socket != there.socket;
  }
  CHECK(between_caches == caches - 1);
  CHECK(between_sockets == sockets - 1);
}

void test_a_large_host() {
  for (const bool is_spread : {false, true})
    test_few_edges_leave_a_cache(host(128, 2, 8, is_spread), 16, 2);
  const MeetingTree tree(host(128, 2, 8, false));
  for (int rank = 0; rank < 128; ++rank)
    CHECK(tree.children(rank).size() <= 7 + 7 + 1);  // in its cache, socket and host
}

// A host's description, where `cpus` CPUs are alike but for their socket and cache.
std::string description(int num_cpus, int cpus_per_socket, int cpus_per_cache) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() /
                                       ("cpus" + std::to_string(this_process().pid));
  for (int cpu = 0; cpu < num_cpus; ++cpu) {
    const auto own = folder / ("cpu" + std::to_string(cpu));
    std::filesystem::create_directories(own / "topology");
    std::ofstream(own / "topology/physical_package_id") << cpu / cpus_per_socket;
    for (const int index : {0, 1}) {
      const auto cache = own / "cache" / ("index" + std::to_string(index));
      std::filesystem::create_directories(cache);
      const int first = index == 0 ? cpu : cpu / cpus_per_cache * cpus_per_cache;
      std::ofstream(cache / "shared_cpu_list") << first << "-" << first + 1;
    }
  }
  return folder;
}

void test_places_are_what_all_cpus_have_in_common() {
  cpu_set_t all;
  CHECK(sched_getaffinity(0, sizeof(all), &all) == 0);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < 256; ++cpu)
    if (CPU_ISSET(cpu, &all)) cpus.push_back(cpu);
  const int last = cpus.back();
  const std::string one = description(last + 1, last + 1, last + 1);
  CHECK((place_of_this_thread(one) == Place{1, 1}));
  std::filesystem::remove_all(one);
  CHECK((place_of_this_thread(one) == Place{}));
  if (cpus.size() < 2) return;
  const std::string sockets = description(last + 1, last, last);
  CHECK((place_of_this_thread(sockets) == Place{}));
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(last, &only);
  CHECK(sched_setaffinity(0, sizeof(only), &only) == 0);
  CHECK((place_of_this_thread(sockets) ==
         Place{2, static_cast<std::uint16_t>(last + 1)}));
  CHECK(sched_setaffinity(0, sizeof(all), &all) == 0);
  std::filesystem::remove_all(sockets);
}

Tuning in_tree(int size) {
  Tuning tuning = Tuning::for_ranks(size);
  tuning.tree_ranks = 2;
  return tuning;
}

// Fewer where they take turns: each turn costs more than what they read.
void test_many_ranks_are_fewer_where_they_take_turns() {
  CHECK(!Tuning::for_ranks(23, 2).are_many(23));
  CHECK(Tuning::for_ranks(24, 2).are_many(24));
  CHECK(!Tuning::for_ranks(32, 32).are_many(32));
  CHECK(Tuning::for_ranks(33, 64).are_many(33));
}

// One rank has looked; the others believe it, if they may run on the same CPUs.
void test_many_ranks_look_up_once_where_they_are() {
  const KnownPlace here = KnownPlace::look_up();
  const Place elsewhere = {7, 9};  // which nobody would find
  KnownPlace known = {here.cpus, elsewhere};
  CHECK(place_here(known) == elsewhere);
  CPU_ZERO(&known.cpus);
  CHECK(place_here(known) == here.place);

  const int size = 5;
  const Layout layout(size);
  const std::shared_ptr<SharedMemory> memory =
      SharedMemory::create(layout.total_bytes());
  Arena::prepare(*memory, size, in_tree(size));
  KnownPlace& found = layout.header(memory->data()).known_place;
  CHECK(CPU_EQUAL(&found.cpus, &here.cpus));
  CHECK(found.place == here.place);
  found.place = elsewhere;
  run_ranks(size, [&](int rank) {
    Arena arena(memory, membership(rank, size));
    barrier(arena, soon());
    CHECK(layout.control(memory->data(), rank).place == (7U << 16 | 9U));
  });
}

// Runs body(arena) as every rank, each of them where `places` says.
template <class Body>
void run_at(const Places& places, Body body) {
  const int size = static_cast<int>(places.size());
  const Layout layout(size);
  const std::shared_ptr<SharedMemory> memory =
      SharedMemory::create(layout.total_bytes());
  Arena::prepare(*memory, size, in_tree(size));
  run_ranks(size, [&](int rank) {
    Arena arena(memory, membership(rank, size));
    const Place place = places[static_cast<std::size_t>(rank)];
    layout.control(memory->data(), rank).place =
        static_cast<std::uint32_t>(place.socket << 16 | place.cache);
    body(arena);
  });
}

void test_operations_are_right(const Places& places) {
  const auto size = static_cast<int>(places.size());
  run_at(places, [&](Arena& arena) {
    for (int turn = 0; turn < 6; ++turn) {
      const int root = turn * 7 % size;
      for (const std::size_t count : {1, 3, 8, 9, 5000}) {
        std::vector<float> data = values(arena.rank(), count);
        const Buffer buffer = buffer_of(data);
        if (turn % 2 == 0) {
          broadcast(arena, buffer, root, soon());
          CHECK(are_values(root, data));
        }
        all_reduce(arena, buffer, buffer, ReduceOp::Max, 1, soon());
        CHECK(are_values(turn % 2 == 0 ? root : size - 1, data));
      }
      std::vector<float> own(1, static_cast<float>(arena.rank() + turn));
      std::vector<float> all(static_cast<std::size_t>(size));
      all_gather(arena, cut(all, std::vector<std::size_t>(all.size(), 1)),
                 buffer_of(own), soon());
      for (int rank = 0; rank < size; ++rank)
        CHECK(all[static_cast<std::size_t>(rank)] == static_cast<float>(rank + turn));
      barrier(arena, soon());
    }
  });
}

// In the order of ranks, wherever these are: other orders have other roundings.
void test_sums_do_not_depend_on_places(int size) {
  const auto part = [](int rank) { return 1.0F / static_cast<float>(rank + 3); };
  float expected = part(0);
  for (int rank = 1; rank < size; ++rank) expected += part(rank);
  for (const Places& places : {nowhere(size), host(size, 2, 3, true)})
    run_at(places, [&](Arena& arena) {
      for (int turn = 0; turn < 3; ++turn) {
        std::vector<float> data(1, part(arena.rank()));
        all_reduce(arena, buffer_of(data), buffer_of(data), ReduceOp::Sum, 1, soon());
        CHECK(data[0] == expected);
      }
    });
}

// Each rank in turn calls something else.
void test_a_mismatch_is_raised_by_all(const Places& places) {
  const auto size = static_cast<int>(places.size());
  run_at(places, [&](Arena& arena) {
    for (int different = 0; different < size; ++different) {
      std::vector<float> data(2, 1);
      const Buffer buffer = buffer_of(data);
      const Error error = error_of([&] {
        if (arena.rank() == different) return broadcast(arena, buffer, 0, soon());
        all_reduce(arena, buffer, buffer, ReduceOp::Sum, 1, soon());
      });
      CHECK(error.kind() == ErrorKind::Mismatch);
      if (arena.rank() != different)
        CHECK(error.ranks() == std::vector<int>{different});
      CHECK(data == std::vector<float>(2, 1));
      all_reduce(arena, buffer, buffer, ReduceOp::Sum, 1, soon());
      CHECK(data[0] == static_cast<float>(size));
    }
  });
}

// All of them are through, also those who are told last: what fails the next meeting
// cannot reach one that is still in this one.
void meet(Arena& arena, std::atomic<int>& num_through) {
  barrier(arena, soon());
  ++num_through;
  while (num_through < arena.size()) std::this_thread::yield();
}

// All name it, whether it leads others or not.
void test_who_does_not_come_is_named(const Places& places, int late) {
  std::atomic<int> num_through{0}, num_here{0};
  const auto size = static_cast<int>(places.size());
  run_at(places, [&](Arena& arena) {
    meet(arena, num_through);
    if (arena.rank() == late) return;
    ++num_here;
    while (num_here < size - 1) std::this_thread::yield();
    const bool is_first = arena.rank() == (late == 0 ? 1 : 0);
    const auto limit = std::chrono::seconds(is_first ? 1 : 600);
    const Error error = error_of([&] { barrier(arena, within(limit)); });
    CHECK(error.kind() == ErrorKind::Timeout);
    CHECK(error.ranks() == std::vector<int>{late});
  });
}

// As one that is stopped when it has come and not yet told the others.
void test_who_does_not_pass_on_is_named(const Places& places) {
  const int top = MeetingTree(places).top();
  std::atomic<bool> is_over{false};
  std::atomic<int> num_through{0}, num_told{0};
  const auto size = static_cast<int>(places.size());
  run_at(places, [&](Arena& arena) {
    meet(arena, num_through);
    if (arena.rank() == top) {
      arena.begin(arena.sequence() + 1, {.op = Op::Barrier}, soon());
      arena.publish();
      while (!is_over) std::this_thread::yield();
      return;
    }
    const Error error =
        error_of([&] { barrier(arena, within(std::chrono::seconds(1))); });
    CHECK(error.kind() == ErrorKind::Timeout);
    CHECK(error.ranks() == std::vector<int>{top});
    if (++num_told == size - 1) is_over = true;
  });
}

// It has come, and is gone before it has passed the word on: nobody waits for the rank
// that is still to come.
void test_who_is_gone_is_named_while_another_is_late(const Places& places) {
  const int top = MeetingTree(places).top();
  const int late = static_cast<int>(places.size()) - 1;
  CHECK(top != late);
  std::atomic<int> num_through{0};
  run_at(places, [&](Arena& arena) {
    meet(arena, num_through);
    if (arena.rank() == late) return;
    if (arena.rank() == top) {
      arena.begin(arena.sequence() + 1, {.op = Op::Barrier}, soon());
      arena.publish();
      arena.leave();
      return;
    }
    const Error error = error_of([&] { barrier(arena, soon()); });
    CHECK(error.kind() == ErrorKind::RankFailed);
    CHECK(error.ranks() == std::vector<int>{top});
  });
}

}  // namespace

int main() {
  test_places_are_what_all_cpus_have_in_common();
  test_many_ranks_are_fewer_where_they_take_turns();
  test_many_ranks_look_up_once_where_they_are();
  test_a_large_host();
  for (int size = 1; size <= 64; ++size) {
    test_all_ranks_are_in_the_tree_once(nowhere(size));
    for (const int sockets : {1, 2, 4})
      for (const int caches : {1, 3, 8})
        for (const bool is_spread : {false, true})
          test_all_ranks_are_in_the_tree_once(host(size, sockets, caches, is_spread));
  }
  test_all_ranks_are_in_the_tree_once(nowhere(512));
  for (const int size : {2, 3, 5, 8, 33}) test_operations_are_right(nowhere(size));
  for (const int size : {5, 8, 40}) test_operations_are_right(host(size, 2, 2, true));
  test_sums_do_not_depend_on_places(21);
  for (const Places& places : {nowhere(20), host(9, 2, 2, false)})
    test_a_mismatch_is_raised_by_all(places);
  for (const int late : {0, 4, 8})
    test_who_does_not_come_is_named(host(9, 2, 2, false), late);
  test_who_does_not_pass_on_is_named(host(9, 2, 2, false));
  for (const Places& places : {nowhere(40), host(9, 2, 2, false)})
    test_who_is_gone_is_named_while_another_is_late(places);
}
