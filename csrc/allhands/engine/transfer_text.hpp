// How messages describe transfers, and the errors that transfers end with.
#pragma once

#include <string>

#include "allhands/base/error.hpp"
#include "allhands/base/wait.hpp"
#include "allhands/engine/message.hpp"
#include "allhands/engine/transfer.hpp"
#include "allhands/host/membership.hpp"

namespace allhands {

// "send(float32, count 3, to rank 1, tag 0) on group 'dp'"
std::string describe(const Transfer& transfer, const Membership& members);

// "<transfer>: rank 0 (this process) waited 30 s for rank 1 (pid 4711)"
Error timeout_error(const Transfer& transfer, Deadline::Duration limit,
                    const Membership& members);
// Of a wait that was stopped, "<transfer>: rank 0 closed the group", or timed out.
Error ended_error(WaitEnd end, const Transfer& transfer, Deadline::Duration limit,
                  const Membership& members);
// As timeout_error(), told to people during the wait.
std::string late_text(const Transfer& transfer, Deadline::Duration waited,
                      Deadline::Duration limit, const Membership& members);
// The peers `gone` died or left the group: one peer, or all others for a receive from
// any.
// `how` is known of the first one; may be empty.
Error gone_error(const Transfer& transfer, const std::vector<int>& gone,
                 const std::string& how, const Membership& members);
// The group broke, for `reason`, before the transfer had ended.
Error aborted_error(const Transfer& transfer, const Error& reason,
                    const Membership& members);
// The sender has given up the message.
Error withdrawn_error(const Transfer& receive, const Membership& members);
// What rank `source` sent does not fit the receive.
Error mismatch_error(const Transfer& receive, int source, const Message& sent,
                     const Membership& members);

}  // namespace allhands
