#include "allhands/comm/bootstrap.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <thread>

#include "allhands/base/error.hpp"
#include "allhands/base/random.hpp"
#include "allhands/comm/orphan.hpp"
#include "allhands/net/socket.hpp"

namespace allhands {
namespace {

// The rank that opens, and what ends its waiting.
class Opening {
 public:
  Opening(const Membership& membership, const Token& token, const Limits& limits)
      : membership_(membership),
        token_(token),
        limits_(limits),
        group_("group '" + membership.name + "'"),
        name_(segment_name(token)),
        address_(name_) {}

  Segment run(std::size_t bytes, const Prepare& prepare) const {
    Wait wait(limits_);
    while (true) {
      if (Fd listener = bind_name(); listener.is_open())
        return make(std::move(listener), bytes, prepare);
      if (std::optional<Segment> theirs = find()) return std::move(*theirs);
      // The rank that makes it is between bind and listen, or between serving the last
      // rank and close. That lasts only a moment.
      if (wait.is_slice_over()) throw_if_ended(wait.look());
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  std::optional<Segment> find() const {
    Fd segment = fetch();
    if (!segment.is_open()) return std::nullopt;
    return Segment{SharedMemory::map(std::move(segment)), nullptr};
  }

 private:
  // Returns a closed Fd if another process has bound the name.
  Fd bind_name() const {
    Fd listener = segment::make_socket();
    if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address_.value),
             address_.length) == 0)
      return listener;
    if (errno != EADDRINUSE)
      throw system_error(ErrorKind::Backend, group_ + ": bind of a Unix socket", errno);
    return Fd();
  }

  Segment make(Fd listener, std::size_t bytes, const Prepare& prepare) const {
    const int backlog = membership_.size() + int{SegmentServer::kMaxStrangers};
    if (listen(listener.get(), backlog) != 0)
      throw system_error(ErrorKind::Backend, group_ + ": listen on a Unix socket",
                         errno);
    auto memory = adopt_or_create(bytes, prepare);
    if (membership_.size() == 1) return {std::move(memory), nullptr};
    auto server = std::make_unique<SegmentServer>(std::move(listener), *memory,
                                                  membership_, token_);
    return {std::move(memory), std::move(server)};
  }

  std::shared_ptr<SharedMemory> adopt_or_create(std::size_t bytes,
                                                const Prepare& prepare) const {
    if (Fd orphan = find_orphan(membership_, name_); orphan.is_open())
      return SharedMemory::map(std::move(orphan));
    auto memory = SharedMemory::create(bytes, name_);
    prepare(*memory);
    return memory;
  }

  // Returns a closed Fd if the caller should try again.
  Fd fetch() const {
    Fd connection = segment::make_socket();
    if (connect(connection.get(), reinterpret_cast<const sockaddr*>(&address_.value),
                address_.length) != 0)
      return Fd();
    maker_pid_ = segment::pid_of_peer(connection);
    if (!segment::is_same_user(connection))
      throw Error(ErrorKind::Backend,
                  group_ + ": its Unix socket belongs to another user of this host");
    segment::Hello hello = {membership_.rank, {}, {}};
    random_bytes(hello.nonce.size()).copy(hello.nonce.data(), hello.nonce.size());
    hello.proof = segment::joiner_proof(token_, hello.rank, hello.nonce);
    if (!segment::send_record(connection, &hello, sizeof(hello))) return Fd();
    wait_for_answer(connection);
    segment::Parcel parcel = segment::receive_answer(connection);
    check(parcel, hello.nonce);
    if (!parcel.fd.is_open() || !is_counted(connection)) return Fd();
    return std::move(parcel.fd);
  }

  void check(const segment::Parcel& parcel, const segment::Nonce& nonce) const {
    const bool is_server =
        parcel.is_whole &&
        is_equal_constant_time(as_view(parcel.answer.proof),
                               as_view(segment::server_proof(token_, nonce)));
    if (parcel.is_whole && !is_server)
      throw Error(ErrorKind::Backend,
                  group_ +
                      ": the process that holds its Unix socket does not know the "
                      "group's token, so it is no rank of this job");
    if (parcel.is_lost)
      throw system_error(ErrorKind::Backend,
                         group_ + ": no file descriptor for its shared memory", EMFILE);
  }

  // Whether the server knows that this rank has it. If the server has died, others may
  // have got a different segment meanwhile; then the segment that it gave must not be
  // used.
  bool is_counted(const Fd& connection) const {
    if (!segment::send_record(connection, &segment::kTaken, sizeof(segment::kTaken)))
      return false;
    wait_for_answer(connection);
    char told = 0;
    return recv(connection.get(), &told, sizeof(told), 0) == sizeof(told) &&
           told == segment::kCounted;
  }

  void wait_for_answer(const Fd& connection) const {
    if (!wait_ready(connection.get(), Direction::Read, limits_))
      throw_if_ended(Wait(limits_).look());
  }

  void throw_if_ended(WaitEnd end) const {
    if (end == WaitEnd::Stopped)
      throw Error(ErrorKind::Backend, group_ + " was closed");
    if (end == WaitEnd::Expired)
      throw Error(
          ErrorKind::Timeout,
          group_ + ": timed out: the rank that made its shared memory did not answer",
          makers());
  }

  // The rank that made the segment; empty if that is unknown.
  std::vector<int> makers() const {
    for (int rank = 0; rank < membership_.size(); ++rank)
      if (membership_.process(rank).pid == maker_pid_) return {rank};
    return {};
  }

  const Membership& membership_;
  const Token& token_;
  const Limits& limits_;
  const std::string group_;
  const std::string name_;  // of the socket and of the memory
  const segment::SocketName address_;
  mutable int maker_pid_ = 0;  // 0: unknown
};

}  // namespace

Segment open_segment(std::size_t bytes, const Prepare& prepare,
                     const Membership& membership, const Token& token,
                     const Limits& limits) {
  return Opening(membership, token, limits).run(bytes, prepare);
}

std::optional<Segment> find_segment(const Membership& membership, const Token& token,
                                    const Limits& limits) {
  return Opening(membership, token, limits).find();
}

}  // namespace allhands
