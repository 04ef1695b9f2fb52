// The costs of messages and of work on arrays: the LogGP model (Alexandrov et al.,
// 1995), and the time of local work. In seconds.
#pragma once

namespace allhands {

struct Costs {
  double latency;           // L: of the network, from one end to the other
  double overhead;          // o: of the processor, for each message at either end
  double gap;               // g: the least time between two messages of one host
  double per_byte;          // G: of a message, at the rate of the host's link
  double per_byte_reduced;  // of each operand except the first
  double per_byte_copied;
};

}  // namespace allhands
