// Groups whose ranks are on several hosts: the parts of this process play them.
#include <string>
#include <vector>

#include "collectives.hpp"
#include "communicators.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

const std::vector<HostNumbers> kPlacements = {
    {0, 1}, {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 0, 1, 2}, {2, 1, 0, 1, 2},
};

// Each to all others and itself, small and large, by numbers and from any.
void test_messages_reach_ranks_anywhere() {
  for (const HostNumbers& hosts : kPlacements)
    run_communicators_on(hosts, [](Communicator& comm) {
      const int size = comm.size();
      for (const std::size_t count : {std::size_t{3}, std::size_t{100000}}) {
        std::vector<float> mine = values(comm.rank(), count);
        std::vector<std::vector<float>> theirs(static_cast<std::size_t>(size),
                                               std::vector<float>(count));
        std::vector<TransferPtr> transfers;
        for (int peer = 0; peer < size; ++peer) {
          Buffer to = buffer_of(theirs[static_cast<std::size_t>(peer)]);
          transfers.push_back(comm.post_recv(to, peer, 5, soon()));
        }
        for (int peer = 0; peer < size; ++peer)
          transfers.push_back(comm.post_send(buffer_of(mine), peer, 5, soon()));
        for (const TransferPtr& transfer : transfers)
          comm.engine().wait(transfer, soon(), ProgressEngine::AtEnd::GiveUp);
        for (int peer = 0; peer < size; ++peer)
          CHECK(are_values(peer, theirs[static_cast<std::size_t>(peer)]));
      }
    });
}

void test_any_source_is_any_host() {
  for (const HostNumbers& hosts : kPlacements)
    run_communicators_on(hosts, [](Communicator& comm) {
      std::vector<float> data = values(comm.rank(), 7);
      if (comm.rank() != 0) return comm.send(buffer_of(data), 0, 1, soon());
      std::vector<bool> has_come(static_cast<std::size_t>(comm.size()));
      for (int i = 1; i < comm.size(); ++i) {
        const int source = comm.recv(buffer_of(data), kAnySource, 1, soon());
        CHECK(are_values(source, data));
        CHECK(!has_come[static_cast<std::size_t>(source)]);
        has_come[static_cast<std::size_t>(source)] = true;
      }
    });
}

// Those that are waited for at once and those that are not, in turns.
void test_collectives_run_in_their_order() {
  for (const HostNumbers& hosts : kPlacements)
    run_communicators_on(hosts, [](Communicator& comm) {
      const int size = comm.size();
      for (int i = 0; i < 20; ++i) {
        std::vector<float> first(5, 1), second(5, static_cast<float>(i));
        const Buffer a = buffer_of(first), b = buffer_of(second);
        const auto work =
            comm.post(all_reduce(a, a, ReduceOp::Sum, 1), soon().deadline);
        comm.run(all_reduce(b, b, ReduceOp::Sum, 1), soon());
        CHECK(second == std::vector<float>(5, static_cast<float>(i * size)));
        comm.wait(*work, soon());
        CHECK(first == std::vector<float>(5, static_cast<float>(size)));
      }
    });
}

void test_shared_arrays_are_for_one_host() {
  run_communicators_on({0, 0, 1}, [](Communicator& comm) {
    const Error error =
        error_of([&] { comm.empty_shared(DType::Float32, {4}, soon()); });
    CHECK(error.kind() == ErrorKind::Backend);
    CHECK(has(error, "are on 2 hosts, which share no memory"));
    comm.run({&kBarrier}, soon());  // the group works on
  });
}

// It is not waited for until somebody reaches it.
void test_a_group_that_nothing_reaches_is_refused() {
  const Error error = error_of([] {
    Communicator(membership_on({0, 0, 1}, 0), fresh_token(),
                 [] { return Tuning::for_ranks(2); });
  });
  CHECK(error.kind() == ErrorKind::Backend);
  CHECK(has(error, "rank 2 is on another host than rank 0 (this process)"));
}

}  // namespace

int main() {
  test_messages_reach_ranks_anywhere();
  test_any_source_is_any_host();
  test_collectives_run_in_their_order();
  test_shared_arrays_are_for_one_host();
  test_a_group_that_nothing_reaches_is_refused();
}
