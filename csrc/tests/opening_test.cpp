// Groups that are closed or broken while their first operation waits for the rank that
// made their memory.
#include <sys/socket.h>

#include <functional>
#include <string>
#include <thread>

#include "allhands/comm/segment_protocol.hpp"
#include "allhands/net/socket.hpp"
#include "communicators.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

// Has the name of a group's segment and answers nobody, as a rank that was stopped.
class StoppedMaker {
 public:
  explicit StoppedMaker(const Token& token) : socket_(segment::make_socket()) {
    const segment::SocketName name(segment_name(token));
    CHECK(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&name.value),
                 name.length) == 0);
    CHECK(::listen(socket_.get(), 8) == 0);
  }

  // Returns once a rank waits for an answer.
  void meet() { CHECK(wait_ready(socket_.get(), Direction::Read, soon())); }

 private:
  Fd socket_;
};

// What the next interrupt does, as a signal's handler may.
std::function<void()> handler;

bool run_handler() {
  if (const auto once = std::exchange(handler, nullptr)) once();
  return false;
}

// The first operation of rank 1 of 2, whose maker does not answer.
struct Opening {
  const Token token = fresh_token();
  StoppedMaker maker{token};
  Communicator comm{membership(1, 2), token, [] { return Tuning::for_ranks(2); }};

  std::string failure() {
    const Error error =
        error_of([&] { comm.run(barrier(), {Deadline::never(), run_handler}); });
    return error.what();
  }
};

bool has(const std::string& text, const char* part) {
  return text.find(part) != text.npos;
}

void test_an_interrupt_may_close_the_group() {
  Opening opening;
  handler = [&] { opening.comm.close(soon()); };
  CHECK(has(opening.failure(), "was closed"));
  CHECK(has(opening.failure(), "was destroyed"));
}

void test_an_interrupt_may_break_the_group() {
  Opening opening;
  handler = [&] { opening.comm.fail(Error(ErrorKind::Backend, "enough")); };
  CHECK(has(opening.failure(), "is broken since: enough"));
}

// It would wait for itself.
void test_an_interrupt_begins_no_other_operation() {
  Opening opening;
  std::string refused;
  handler = [&] {
    refused = error_of([&] { opening.comm.run(barrier(), soon()); }).what();
    opening.comm.close(soon());
  };
  opening.failure();
  CHECK(has(refused, "a signal's handler calls it within another operation"));
}

void test_another_thread_may_break_the_group() {
  Opening opening;
  std::thread other([&] {
    opening.maker.meet();
    opening.comm.fail(Error(ErrorKind::Backend, "enough"));
  });
  CHECK(has(opening.failure(), "is broken since: enough"));
  other.join();
}

// What closes it in a thread waits for a handler that closes it in another one, and
// must not be waited for there.
void test_two_threads_may_close_the_group() {
  Opening opening;
  std::thread other([&] {
    opening.maker.meet();
    opening.comm.close(soon());
  });
  handler = [&] { opening.comm.close(soon()); };
  CHECK(has(opening.failure(), "was "));  // closed or destroyed
  other.join();
}

// Another thread whose first operation waits for that of this one, within its own
// limit.
void test_another_thread_waits_within_its_limit() {
  Opening opening;
  std::thread other([&] {
    opening.maker.meet();
    const Error error = error_of(
        [&] { opening.comm.run(barrier(), within(std::chrono::milliseconds(1))); });
    CHECK(error.kind() == ErrorKind::Timeout);
  });
  CHECK(has(opening.failure(), "is broken since: first operation on group"));
  other.join();
}

}  // namespace

int main() {
  test_an_interrupt_may_close_the_group();
  test_an_interrupt_may_break_the_group();
  test_an_interrupt_begins_no_other_operation();
  test_another_thread_may_break_the_group();
  test_two_threads_may_close_the_group();
  test_another_thread_waits_within_its_limit();
}
