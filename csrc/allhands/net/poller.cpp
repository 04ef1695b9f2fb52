#include "allhands/net/poller.hpp"

#include <algorithm>
#include <cerrno>

#include "allhands/base/error.hpp"

namespace allhands {
namespace {

int to_milliseconds(std::chrono::nanoseconds limit) {
  constexpr auto kLongest = std::chrono::milliseconds(1000 * 60 * 60);
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(
                              std::min<std::chrono::nanoseconds>(limit, kLongest))
                              .count());
}

}  // namespace

Poller::Poller() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_.is_open()) throw system_error(ErrorKind::Network, "epoll_create1", errno);
}

void Poller::control(int operation, int fd, std::uint32_t events) {
  epoll_event event = {};
  event.events = events;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_.get(), operation, fd, &event) != 0)
    throw system_error(ErrorKind::Network, "epoll_ctl", errno);
}

void Poller::add(int fd) { control(EPOLL_CTL_ADD, fd, EPOLLIN); }

void Poller::watch(int fd, bool is_readable, bool is_writable) {
  control(EPOLL_CTL_MOD, fd,
          (is_readable ? EPOLLIN : 0u) | (is_writable ? EPOLLOUT : 0u));
}

void Poller::remove(int fd) { control(EPOLL_CTL_DEL, fd, 0); }

std::span<const Readiness> Poller::wait(std::chrono::nanoseconds limit) {
  const int count =
      ::epoll_wait(epoll_.get(), events_.data(), kMaxEvents, to_milliseconds(limit));
  if (count < 0 && errno != EINTR)
    throw system_error(ErrorKind::Network, "epoll_wait", errno);
  const std::size_t num_ready = count > 0 ? static_cast<std::size_t>(count) : 0;
  for (std::size_t i = 0; i < num_ready; ++i) {
    const std::uint32_t events = events_[i].events;
    ready_[i] = {events_[i].data.fd,
                 (events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP)) != 0,
                 (events & EPOLLOUT) != 0};
  }
  return {ready_.data(), num_ready};
}

}  // namespace allhands
