// The store's behaviour without sockets: what is answered at once, what is parked.
#include <map>
#include <set>

#include "allhands/base/error.hpp"
#include "allhands/store/service.hpp"
#include "check.hpp"

namespace allhands::store {
namespace {

struct Store {
  std::map<int, std::vector<Reply>> replies;
  std::set<int> gone;
  Service service{
      [this](int client, Reply reply) { replies[client].push_back(std::move(reply)); },
      [this](int client) { return !gone.contains(client); }};

  void ask(int client, Op op, std::vector<std::string> fields,
           std::int64_t number = 0) {
    service.handle(client, {static_cast<std::uint32_t>(op), number, std::move(fields)});
  }
  std::size_t num_replies(int client) { return replies[client].size(); }
  Reply last(int client) { return replies[client].back(); }
  std::string text(int client) { return *last(client).fields.at(0); }
};

void get_waits_for_the_key() {
  Store store;
  store.ask(1, Op::Get, {"k"});
  store.ask(2, Op::Set, {"other", "1"});
  CHECK(store.num_replies(1) == 0);
  store.ask(2, Op::Set, {"k", "v"});
  CHECK(store.num_replies(1) == 1 && store.text(1) == "v");
}

void wait_needs_every_key_and_a_queue_is_one() {
  Store store;
  store.ask(1, Op::Wait, {"a", "b", "q"});
  store.ask(2, Op::Set, {"b", ""});
  store.ask(2, Op::QueuePush, {"q", "x"});
  CHECK(store.num_replies(1) == 0);
  store.ask(2, Op::Add, {"a"}, 1);
  CHECK(store.num_replies(1) == 1);
}

void multi_get_waits_again_for_what_was_deleted() {
  Store store;
  store.ask(2, Op::Set, {"a", "1"});
  store.ask(1, Op::MultiGet, {"a", "b"});
  store.ask(2, Op::DeleteKey, {"a"});
  store.ask(2, Op::Set, {"b", "2"});
  CHECK(store.num_replies(1) == 0);
  store.ask(2, Op::Set, {"a", "3"});
  CHECK(store.text(1) == "3" && *store.last(1).fields.at(1) == "2");
}

void a_cancelled_or_gone_client_waits_no_more() {
  Store store;
  store.ask(1, Op::Get, {"k"});
  store.ask(1, Op::Cancel, {});
  CHECK(store.last(1).status == Status::Cancelled);
  store.ask(1, Op::Cancel, {});  // crossed the answer
  CHECK(store.num_replies(1) == 1);
  store.ask(3, Op::Get, {"k"});
  store.service.leave(3);
  store.ask(2, Op::Set, {"k", "v"});
  CHECK(store.num_replies(1) == 1 && store.num_replies(3) == 0);
}

void queues_are_first_in_first_out_for_values_and_clients() {
  Store store;
  store.ask(1, Op::QueuePop, {"q"}, 1);
  store.ask(2, Op::QueuePop, {"q"}, 1);
  store.ask(3, Op::QueuePop, {"q"});
  CHECK(store.last(3).status == Status::QueueEmpty);
  store.ask(3, Op::QueuePush, {"q", "a"});
  CHECK(store.text(1) == "a" && store.num_replies(2) == 0);
  store.ask(3, Op::QueuePush, {"q", "b"});
  CHECK(store.text(2) == "b");
  store.ask(3, Op::QueueLen, {"q"});
  CHECK(store.last(3).number == 0);
}

void a_value_is_handed_to_nobody_who_has_gone() {
  Store store;
  store.ask(1, Op::QueuePop, {"q"}, 1);
  store.ask(2, Op::QueuePop, {"q"}, 1);
  store.gone = {1, 3, 4};
  store.ask(5, Op::QueuePush, {"q", "a"});
  CHECK(store.text(2) == "a");
  store.ask(5, Op::QueuePush, {"q", "b"});
  store.ask(3, Op::QueuePop, {"q"});
  store.ask(4, Op::QueuePop, {"q"}, 1);
  store.service.leave(1);
  store.ask(5, Op::QueuePop, {"q"});
  CHECK(store.text(5) == "b");
}

void a_survey_tells_of_numbered_keys() {
  Store store;
  store.ask(1, Op::Set, {"k/0", "v"});
  store.ask(1, Op::Set, {"k/2", ""});
  store.ask(1, Op::Set, {"k/10", "v"});
  store.ask(1, Op::QueuePush, {"k/3", "q"});  // is no key
  store.ask(1, Op::Survey, {"k/"}, 4);
  CHECK(store.text(1) == std::string("\2\0\1\0", 4));
  store.ask(1, Op::Survey, {"k/"}, 11);
  CHECK(store.text(1).back() == '\2');
  store.ask(1, Op::Survey, {"k/"}, 0);
  CHECK(store.text(1).empty());
  for (const std::int64_t count : {std::int64_t{-1}, std::int64_t{kMaxFields} + 1}) {
    store.ask(1, Op::Survey, {"k/"}, count);
    CHECK(store.last(1).status == Status::InvalidValue);
  }
}

void barrier_releases_all_and_starts_anew() {
  Store store;
  for (int round = 0; round < 2; ++round) {
    for (int client = 0; client < 3; ++client) {
      for (int i = 0; i < client; ++i)
        CHECK(store.num_replies(i) == static_cast<std::size_t>(round));
      store.ask(client, Op::Barrier, {"b"}, 3);
    }
    for (int i = 0; i < 3; ++i)
      CHECK(store.num_replies(i) == static_cast<std::size_t>(round + 1));
  }
}

void barrier_forgets_who_left() {
  Store store;
  store.ask(1, Op::Barrier, {"b"}, 2);
  store.ask(1, Op::Cancel, {});
  store.ask(2, Op::Barrier, {"b"}, 2);
  CHECK(store.num_replies(2) == 0);
  store.ask(3, Op::Barrier, {"b"}, 3);
  CHECK(store.last(3).status == Status::InvalidValue);  // others wait for 2
}

void workers_are_awaited() {
  Store store;
  store.ask(1, Op::Join, {});
  store.ask(1, Op::AwaitWorkers, {}, 2);
  CHECK(store.num_replies(1) == 1);
  store.ask(2, Op::Join, {});
  CHECK(store.last(1).number == 2);
  store.ask(1, Op::NumKeys, {});
  CHECK(store.last(1).number == 0);
  store.ask(3, Op::Join, {}, 1);  // says that it counts as a key
  store.ask(1, Op::NumKeys, {});
  CHECK(store.last(1).number == 1);
}

void add_counts_and_wraps() {
  Store store;
  store.ask(1, Op::Set, {"n", "9223372036854775807"});
  store.ask(1, Op::Add, {"n"}, 1);
  CHECK(store.last(1).number == INT64_MIN);
  // What may stand in a file or come from another client.
  for (const char* text : {" 1 ", "+1", "001"}) {
    store.ask(1, Op::Set, {"n", text});
    store.ask(1, Op::Add, {"n"}, 1);
    CHECK(store.last(1).number == 2);
  }
  store.ask(1, Op::Set, {"n", ""});
  store.ask(1, Op::Add, {"n"}, 1);
  CHECK(store.last(1).number == 1);
  for (const char* text : {" ", "x", "1x", "9223372036854775808"}) {
    store.ask(1, Op::Set, {"n", text});
    store.ask(1, Op::Add, {"n"}, 1);
    CHECK(store.last(1).status == Status::InvalidValue);
    store.ask(1, Op::Get, {"n"});
    CHECK(store.text(1) == text);
  }
}

void a_reply_keeps_its_bytes() {
  Store store;
  store.ask(1, Op::Set, {"k", "old"});
  store.ask(1, Op::Get, {"k"});
  store.ask(2, Op::Append, {"k", "er"});
  CHECK(store.text(1) == "old");
  store.ask(2, Op::Get, {"k"});
  CHECK(store.text(2) == "older");
}

void a_last_will_is_done_when_its_client_goes() {
  Store store;
  store.ask(1, Op::Set, {"gone", "the one before"});
  store.ask(1, Op::Will, {"gone", "1"});
  store.ask(2, Op::Check, {"gone"});
  CHECK(store.last(2).number == 0);
  store.ask(2, Op::Wait, {"gone"});
  CHECK(store.num_replies(2) == 1);
  store.service.leave(3);
  CHECK(store.num_replies(2) == 1);
  store.service.leave(1);
  CHECK(store.num_replies(2) == 2);
  store.ask(2, Op::Get, {"gone"});
  CHECK(store.text(2) == "1");
  store.ask(2, Op::DeleteKey, {"gone"});
  store.service.leave(1);  // again: it is done once
  store.ask(2, Op::NumKeys, {});
  CHECK(store.last(2).number == 0);
}

void a_last_will_that_was_withdrawn_is_not_done() {
  Store store;
  store.ask(1, Op::Will, {"first", "1"});
  store.ask(1, Op::Will, {"second", "1"});
  store.ask(2, Op::Will, {"other", "1"});
  store.ask(2, Op::Will, {});
  store.service.leave(1);
  store.service.leave(2);
  store.ask(3, Op::ListKeys, {});
  CHECK(store.last(3).fields.size() == 1 && store.text(3) == "second");
}

void malformed_requests_are_refused() {
  Store store;
  CHECK_THROWS(store.ask(1, Op::Set, {"k"}), Error);
  CHECK_THROWS(store.ask(1, Op::MultiSet, {"k", "v", "k"}), Error);
  CHECK_THROWS(store.ask(1, Op::Will, {"k"}), Error);
  CHECK_THROWS(store.ask(1, static_cast<Op>(77), {}), Error);
  store.ask(1, Op::Set, {std::string(kMaxKeyBytes + 1, 'k'), ""});
  CHECK(store.last(1).status == Status::InvalidValue);
  store.ask(1, Op::Get, {"k"});
  CHECK_THROWS(store.ask(1, Op::NumKeys, {}), Error);  // while it waits
}

}  // namespace
}  // namespace allhands::store

int main() {
  allhands::store::get_waits_for_the_key();
  allhands::store::wait_needs_every_key_and_a_queue_is_one();
  allhands::store::multi_get_waits_again_for_what_was_deleted();
  allhands::store::a_cancelled_or_gone_client_waits_no_more();
  allhands::store::queues_are_first_in_first_out_for_values_and_clients();
  allhands::store::a_value_is_handed_to_nobody_who_has_gone();
  allhands::store::a_survey_tells_of_numbered_keys();
  allhands::store::barrier_releases_all_and_starts_anew();
  allhands::store::barrier_forgets_who_left();
  allhands::store::workers_are_awaited();
  allhands::store::add_counts_and_wraps();
  allhands::store::a_reply_keeps_its_bytes();
  allhands::store::a_last_will_is_done_when_its_client_goes();
  allhands::store::a_last_will_that_was_withdrawn_is_not_done();
  allhands::store::malformed_requests_are_refused();
}
