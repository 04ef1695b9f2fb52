// TCP sockets: made non-blocking and close-on-exec, used through the waits below, which
// have a deadline and obey an interrupt. No function here is bound to a thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "allhands/base/fd.hpp"
#include "allhands/base/wait.hpp"
#include "allhands/net/address.hpp"

namespace allhands {

// A socket bound to `address` that listens, or an fd that is not open, with errno set.
Fd listen_at(const Address& address);

// A connection to `address`; not open, with the reason in `problem`, when there is none
// before the deadline. Throws Error(Network) where this process has no descriptor left.
Fd connect_to(const Address& address, const Limits& limits, std::string& problem);

// A socket that is being connected to `address`: it is writable once connection_error()
// can tell. Not open, with the reason in `code`, where that has failed at once.
Fd start_connecting(const Address& address, int& code);

// What has become of it, as errno has it; 0: it is connected.
int connection_error(int socket);

// The next connection; not open, with errno set, when there is none now.
Fd accept_from(int listener);

Address local_address(int socket);

// Small messages leave at once (TCP_NODELAY), and a peer whose host is gone is noticed
// within about 30 s (keep-alive). What was lost in a cut is sent again each second
// (Linux 6.15; before, after as long as the cut has lasted).
void tune(int socket);

// What a socket is waited for: data to read, or room to write.
enum class Direction { Read, Write };

// False when the limits ended first; throws Interrupted.
bool wait_ready(int fd, Direction direction, const Limits& limits);

// Whether the peer can still read: false where it closed, or failed, as far as the
// kernel knows. Bytes that it sent before may be there to be read.
bool is_connected(int socket);

// Sleeps until the limits end; throws Interrupted.
void wait_until(const Limits& limits);

}  // namespace allhands
