// TCP sockets, non-blocking and close-on-exec, which are used through the waits below.
// The waits have a deadline and obey an interrupt. All functions may be called from any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "allhands/base/fd.hpp"
#include "allhands/base/wait.hpp"
#include "allhands/net/address.hpp"

namespace allhands {

// Returns a socket bound to `address` that listens, or one that is not open, with errno
// set.
Fd listen_at(const Address& address);

// Returns a connection to `address`. It is not open, with the reason in `problem`, if
// none was made before the deadline. Throws Error(Network) if this process has no
// descriptors left.
Fd connect_to(const Address& address, const Limits& limits, std::string& problem);

// Returns a socket that is connecting to `address`; once it is writable,
// connection_error() gives the result. It is not open, with the reason in `code`, if
// connecting failed at once.
Fd start_connecting(const Address& address, int& code);

// The result of connecting, as an errno; 0: it is connected.
int connection_error(int socket);

// Returns the next connection. It is not open, with errno set, if there is none now.
Fd accept_from(int listener);

Address local_address(int socket);

// Makes small messages leave at once (TCP_NODELAY), and a peer whose host is gone be
// noticed within about 30 s (keep-alive). What was lost in a cut is sent again each
// second (Linux 6.15; on older kernels, after as long as the cut has lasted).
void tune(int socket);

// What to wait for: data to read, or room to write.
enum class Direction { Read, Write };

// Returns false if the limits ended first; throws Interrupted.
bool wait_ready(int fd, Direction direction, const Limits& limits);

// Whether the peer can still read; false if it closed or failed, as far as the kernel
// knows.
// Bytes that it sent before may still be there to read.
bool is_connected(int socket);

// Sleeps until the limits end; throws Interrupted.
void wait_until(const Limits& limits);

}  // namespace allhands
