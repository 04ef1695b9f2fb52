#include "allhands/comm/bootstrap.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "allhands/base/error.hpp"
#include "allhands/comm/orphan.hpp"
#include "allhands/net/socket.hpp"

namespace allhands {
namespace {

constexpr std::size_t kHalf = std::tuple_size_v<Token> / 2;

struct Hello {
  std::int32_t rank;
  std::byte proof[kHalf];
};

struct SocketName {
  sockaddr_un value = {};
  socklen_t length = 0;
};

// "allhands-" and the first half of the token in hexadecimal.
std::string name_of(const Token& token) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string name = "allhands-";
  for (std::size_t i = 0; i < kHalf; ++i) {
    const auto byte = std::to_integer<unsigned>(token[i]);
    name += kDigits[byte >> 4];
    name += kDigits[byte & 15];
  }
  return name;
}

// Of an abstract socket: a zero, then its name.
SocketName address_of(const std::string& name) {
  SocketName address;
  address.value.sun_family = AF_UNIX;
  std::memcpy(address.value.sun_path + 1, name.data(), name.size());
  address.length =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

Fd make_socket() {
  Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) throw system_error(ErrorKind::Backend, "Unix socket", errno);
  return fd;
}

bool is_same_user(const Fd& connection) {
  ucred peer = {};
  socklen_t length = sizeof(peer);
  return getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         peer.uid == geteuid();
}

bool is_proof(const std::byte* proof, const Token& token) {
  std::byte difference{0};
  for (std::size_t i = 0; i < kHalf; ++i) difference |= proof[i] ^ token[kHalf + i];
  return difference == std::byte{0};
}

// A message of one byte that carries a descriptor.
class FdMessage {
 public:
  FdMessage() {
    header_.msg_iov = &vector_;
    header_.msg_iovlen = 1;
    header_.msg_control = control_;
    header_.msg_controllen = sizeof(control_);
  }

  void send(int connection, int fd) {
    cmsghdr* control = CMSG_FIRSTHDR(&header_);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(control), &fd, sizeof(int));
    // Should it fail, the peer sees the connection close and tries again.
    sendmsg(connection, &header_, MSG_NOSIGNAL);
  }

  Fd receive(int connection) {
    if (recvmsg(connection, &header_, MSG_CMSG_CLOEXEC) != 1) return Fd();
    const cmsghdr* control = CMSG_FIRSTHDR(&header_);
    if (control == nullptr || control->cmsg_type != SCM_RIGHTS) return Fd();
    int fd;
    std::memcpy(&fd, CMSG_DATA(control), sizeof(int));
    return Fd(fd);
  }

 private:
  char byte_ = 0;
  iovec vector_ = {&byte_, 1};
  msghdr header_ = {};
  alignas(cmsghdr) char control_[CMSG_SPACE(sizeof(int))] = {};
};

constexpr int kLingerMs = 5000;

int dup_of(int fd) {
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) throw system_error(ErrorKind::Backend, "dup", errno);
  return copy;
}

// The rank that opens, and what ends its waiting.
class Opening {
 public:
  Opening(const Membership& membership, const Token& token, const Limits& limits)
      : membership_(membership),
        token_(token),
        limits_(limits),
        name_(name_of(token)),
        address_(address_of(name_)) {}

  Segment run(std::size_t bytes, const Prepare& prepare) const {
    Wait wait(limits_);
    while (true) {
      if (Fd listener = bind_name(); listener.is_open())
        return make(std::move(listener), bytes, prepare);
      if (std::optional<Segment> theirs = find()) return std::move(*theirs);
      // Between bind and listen of the rank that makes it, or between its last rank
      // served and its close: a moment.
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
  // A closed Fd: somebody else has it.
  Fd bind_name() const {
    Fd listener = make_socket();
    if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address_.value),
             address_.length) == 0)
      return listener;
    if (errno != EADDRINUSE)
      throw system_error(ErrorKind::Backend,
                         "group '" + membership_.name + "': bind of a Unix socket",
                         errno);
    return Fd();
  }

  Segment make(Fd listener, std::size_t bytes, const Prepare& prepare) const {
    if (listen(listener.get(), membership_.size()) != 0)
      throw system_error(ErrorKind::Backend,
                         "group '" + membership_.name + "': listen on a Unix socket",
                         errno);
    auto memory = adopt_or_create(bytes, prepare);
    if (membership_.size() == 1) return {std::move(memory), nullptr};
    auto server = std::make_unique<SegmentServer>(std::move(listener), *memory,
                                                  membership_.size(), token_);
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

  // A closed Fd: try again.
  Fd fetch() const {
    Fd connection = make_socket();
    if (connect(connection.get(), reinterpret_cast<const sockaddr*>(&address_.value),
                address_.length) != 0)
      return Fd();
    if (!is_same_user(connection))
      throw Error(ErrorKind::Backend,
                  "group '" + membership_.name +
                      "': its Unix socket belongs to another user of this host");
    Hello hello = {membership_.rank, {}};
    std::copy_n(token_.begin() + kHalf, kHalf, hello.proof);
    if (send(connection.get(), &hello, sizeof(hello), MSG_NOSIGNAL) < 0) return Fd();
    if (!wait_ready(connection.get(), Direction::Read, limits_))
      throw_if_ended(Wait(limits_).look());
    return FdMessage().receive(connection.get());
  }

  void throw_if_ended(WaitEnd end) const {
    const std::string group = "group '" + membership_.name + "'";
    if (end == WaitEnd::Interrupted) throw interrupted();
    if (end == WaitEnd::Stopped) throw Error(ErrorKind::Backend, group + " was closed");
    if (end == WaitEnd::Expired)
      throw Error(ErrorKind::Timeout,
                  group + ": the rank that made its shared memory did not answer");
  }

  const Membership& membership_;
  const Token& token_;
  const Limits& limits_;
  const std::string name_;  // of the socket and of the memory
  const SocketName address_;
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

// The thread of a SegmentServer; owns all it needs.
class SegmentServer::Service {
 public:
  Service(Fd listener, Fd no_more, Fd segment, int size, const Token& token)
      : listener_(std::move(listener)),
        no_more_(std::move(no_more)),
        segment_(std::move(segment)),
        token_(token),
        served_(static_cast<std::size_t>(size)),
        num_waiting_(size - 1) {}

  void run() {
    while (!is_done()) {
      std::vector<pollfd> entries = {{no_more_.get(), POLLIN, 0},
                                     {listener_.get(), POLLIN, 0}};
      for (const Fd& connection : connections_)
        entries.push_back({connection.get(), POLLIN, 0});
      if (is_lingering_) entries[0].fd = -1;
      const int count = poll(entries.data(), entries.size(), remaining_ms());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return;  // nobody came any more
      if (entries[0].revents != 0) linger();
      for (std::size_t i = 2; i < entries.size(); ++i)
        if (entries[i].revents != 0) answer(connections_[i - 2]);
      std::erase_if(connections_, [](const Fd& fd) { return !fd.is_open(); });
      if (entries[1].revents != 0) accept_one();
    }
  }

  bool is_done() const { return num_waiting_ == 0; }

 private:
  void linger() {
    is_lingering_ = true;
    end_ = Deadline::after(std::chrono::milliseconds(kLingerMs));
  }

  int remaining_ms() const {
    if (!is_lingering_) return -1;
    using std::chrono::milliseconds;
    const auto left = std::chrono::ceil<milliseconds>(end_.remaining());
    return static_cast<int>(left.count());
  }

  void accept_one() {
    Fd connection(
        accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection.is_open() && is_same_user(connection))
      connections_.push_back(std::move(connection));
  }

  // Whatever the peer sent, one answer is all it gets.
  void answer(Fd& connection) {
    Hello hello = {};
    const ssize_t length = recv(connection.get(), &hello, sizeof(hello), 0);
    const bool is_member = length == static_cast<ssize_t>(sizeof(hello)) &&
                           is_proof(hello.proof, token_) && hello.rank >= 0 &&
                           static_cast<std::size_t>(hello.rank) < served_.size();
    if (is_member) {
      // Counted first: who has the segment may be done with the group at once.
      const auto rank = static_cast<std::size_t>(hello.rank);
      if (!served_[rank]) --num_waiting_;
      served_[rank] = true;
      FdMessage().send(connection.get(), segment_.get());
    }
    connection.reset();
  }

  Fd listener_;
  Fd no_more_;
  Fd segment_;
  Token token_;
  std::vector<Fd> connections_;
  std::vector<bool> served_;
  std::atomic<int> num_waiting_;
  bool is_lingering_ = false;
  Deadline end_ = Deadline::after(Deadline::Duration::zero());
};

SegmentServer::SegmentServer(Fd listener, const SharedMemory& memory, int size,
                             const Token& token) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw system_error(ErrorKind::Backend, "pipe", errno);
  no_more_ = Fd(ends[1]);
  service_ = std::make_shared<Service>(std::move(listener), Fd(ends[0]),
                                       Fd(dup_of(memory.fd())), size, token);
  thread_ = std::thread([service = service_] { service->run(); });
}

SegmentServer::~SegmentServer() {
  if (service_->is_done())
    thread_.join();
  else
    thread_.detach();
}

}  // namespace allhands
