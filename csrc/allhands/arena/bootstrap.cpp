#include "allhands/arena/bootstrap.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>

#include "allhands/base/error.hpp"

namespace allhands {
namespace {

constexpr std::size_t kHalf = std::tuple_size_v<Token> / 2;

struct Hello {
  std::int32_t rank;
  std::byte proof[kHalf];
};

struct Address {
  sockaddr_un value = {};
  socklen_t length = 0;
};

// "\0allhands-" and the first half of the token in hexadecimal.
Address address_of(const Token& token) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string name("\0allhands-", 10);
  for (std::size_t i = 0; i < kHalf; ++i) {
    const auto byte = std::to_integer<unsigned>(token[i]);
    name += kDigits[byte >> 4];
    name += kDigits[byte & 15];
  }
  Address address;
  address.value.sun_family = AF_UNIX;
  std::memcpy(address.value.sun_path, name.data(), name.size());
  address.length =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
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

// The rank that fetches, and what ends its waiting.
class Fetch {
 public:
  Fetch(const Membership& membership, const Token& token, const Limits& limits)
      : membership_(membership), token_(token), limits_(limits) {}

  std::shared_ptr<SharedMemory> run() {
    const Address address = address_of(token_);
    auto pause = std::chrono::microseconds(100);
    while (true) {
      if (Fd fd = try_once(address); fd.is_open())
        return SharedMemory::map(std::move(fd));
      look_around();
      // Not there yet. The only moment in a group's life that polls, hence the growing
      // pause; the first rank may be seconds away.
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, std::chrono::microseconds(5000));
    }
  }

 private:
  // A closed Fd: try again.
  Fd try_once(const Address& address) {
    Fd connection = make_socket();
    if (connect(connection.get(), reinterpret_cast<const sockaddr*>(&address.value),
                address.length) != 0)
      return Fd();
    if (!is_same_user(connection))
      throw Error(ErrorKind::Backend,
                  "group '" + membership_.name +
                      "': the socket of rank 0 belongs to another user of this host");
    Hello hello = {membership_.rank, {}};
    std::copy_n(token_.begin() + kHalf, kHalf, hello.proof);
    if (send(connection.get(), &hello, sizeof(hello), MSG_NOSIGNAL) < 0) return Fd();
    while (true) {
      pollfd entry = {connection.get(), POLLIN, 0};
      if (poll(&entry, 1, kInterruptSliceMs) > 0)
        return FdMessage().receive(connection.get());
      look_around();
    }
  }

  void look_around() const {
    if (limits_.interrupt != nullptr && limits_.interrupt())
      throw Error(ErrorKind::Interrupted, "interrupted");
    if (limits_.stop != nullptr && limits_.stop->load(std::memory_order_relaxed))
      throw Error(ErrorKind::Backend, "group '" + membership_.name + "' was closed");
    if (!membership_.is_peer_alive(0))
      throw Error(ErrorKind::RankFailed,
                  "group '" + membership_.name + "': " + membership_.describe(0) +
                      " died before the group's first operation",
                  {0});
    if (limits_.deadline.is_expired()) {
      const auto limit = std::chrono::duration<double>(limits_.deadline.limit());
      throw Error(
          ErrorKind::Timeout,
          "group '" + membership_.name + "': rank " + std::to_string(membership_.rank) +
              " (this process) waited " + std::to_string(limit.count()) + " s for " +
              membership_.describe(0) + ", which has called nothing on this group yet",
          {0});
    }
  }

  const Membership& membership_;
  const Token& token_;
  const Limits& limits_;
};

}  // namespace

SegmentServer::SegmentServer(const SharedMemory& memory, const Membership& membership,
                             const Token& token)
    : segment_(memory.fd()),
      token_(token),
      listener_(make_socket()),
      stop_(eventfd(0, EFD_CLOEXEC)),
      served_(static_cast<std::size_t>(membership.size())),
      num_waiting_(membership.size() - 1) {
  const Address address = address_of(token);
  if (bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address.value),
           address.length) != 0 ||
      listen(listener_.get(), membership.size()) != 0)
    throw system_error(ErrorKind::Backend,
                       "group '" + membership.name + "': Unix socket of rank 0", errno);
  thread_ = std::thread([this] { serve(); });
}

SegmentServer::~SegmentServer() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  while (write(stop_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
  }
  thread_.join();
}

void SegmentServer::serve() {
  while (num_waiting_ > 0) {
    std::vector<pollfd> entries = {{stop_.get(), POLLIN, 0},
                                   {listener_.get(), POLLIN, 0}};
    for (const Fd& connection : connections_)
      entries.push_back({connection.get(), POLLIN, 0});
    if (poll(entries.data(), entries.size(), -1) < 0) continue;
    if (entries[0].revents != 0) break;
    for (std::size_t i = 2; i < entries.size(); ++i)
      if (entries[i].revents != 0) answer(connections_[i - 2]);
    std::erase_if(connections_, [](const Fd& fd) { return !fd.is_open(); });
    if (entries[1].revents != 0) accept_one();
  }
  connections_.clear();
  listener_.reset();
}

void SegmentServer::accept_one() {
  Fd connection(
      accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (connection.is_open() && is_same_user(connection))
    connections_.push_back(std::move(connection));
}

// Whatever the peer sent, one answer is all it gets.
void SegmentServer::answer(Fd& connection) {
  Hello hello = {};
  const ssize_t length = recv(connection.get(), &hello, sizeof(hello), 0);
  const bool is_member = length == static_cast<ssize_t>(sizeof(hello)) &&
                         is_proof(hello.proof, token_) && hello.rank > 0 &&
                         static_cast<std::size_t>(hello.rank) < served_.size();
  if (is_member) {
    FdMessage().send(connection.get(), segment_);
    const auto rank = static_cast<std::size_t>(hello.rank);
    if (!served_[rank]) --num_waiting_;
    served_[rank] = true;
  }
  connection.reset();
}

std::shared_ptr<SharedMemory> fetch_segment(const Membership& membership,
                                            const Token& token, const Limits& limits) {
  return Fetch(membership, token, limits).run();
}

}  // namespace allhands
