#include "allhands/engine/transfer_text.hpp"

#include "allhands/base/seconds.hpp"

namespace allhands {
namespace {

std::string describe_peer(const Transfer& transfer, const Membership& members) {
  return transfer.peer == kAnySource ? "any rank" : members.describe(transfer.peer);
}

std::string this_rank(const Membership& members) {
  return "rank " + std::to_string(members.rank) + " (this process)";
}

}  // namespace

std::string describe(const Transfer& transfer, const Membership& members) {
  std::string text = transfer.is_send ? "send(" : "recv(";
  if (transfer.fit == Fit::Look)
    text = "probe(";
  else
    text += std::string(name_of(transfer.buffer.dtype)) + ", count " +
            std::to_string(transfer.buffer.count) + ", ";
  text += (transfer.is_send ? "to " : "from ") +
          (transfer.peer == kAnySource ? "any rank"
                                       : "rank " + std::to_string(transfer.peer)) +
          (transfer.tag.number == kAnyTag
               ? ", any tag)"
               : ", tag " + std::to_string(transfer.tag.number) + ")");
  return text + " on group " + members.quoted();
}

Error timeout_error(const Transfer& transfer, Deadline::Duration limit,
                    const Membership& members) {
  std::vector<int> missing;
  if (transfer.peer != kAnySource) missing.push_back(transfer.peer);
  return Error(ErrorKind::Timeout,
               describe(transfer, members) + ": " + this_rank(members) +
                   " timed out: waited " + seconds(limit) + " for " +
                   describe_peer(transfer, members),
               missing);
}

Error ended_error(WaitEnd end, const Transfer& transfer, Deadline::Duration limit,
                  const Membership& members) {
  if (end != WaitEnd::Stopped) return timeout_error(transfer, limit, members);
  return Error(ErrorKind::Backend, describe(transfer, members) + ": rank " +
                                       std::to_string(members.rank) +
                                       " closed the group");
}

std::string late_text(const Transfer& transfer, Deadline::Duration waited,
                      Deadline::Duration limit, const Membership& members) {
  return describe(transfer, members) + ": " + this_rank(members) + " has waited " +
         seconds(waited) + " (limit " + seconds(limit) + ") for " +
         describe_peer(transfer, members);
}

Error gone_error(const Transfer& transfer, const std::vector<int>& gone,
                 const std::string& how, const Membership& members) {
  const std::string who =
      transfer.other() == kAnySource
          ? "all others, " + members.describe(gone[0]) + " among them,"
          : members.describe(gone[0]);
  return Error(ErrorKind::RankFailed,
               describe(transfer, members) + ": " + who + " died or left the group" +
                   (how.empty() ? "" : ": " + how),
               gone);
}

Error aborted_error(const Transfer& transfer, const Error& reason,
                    const Membership& members) {
  return reason.retold(describe(transfer, members) + ": " + reason.what());
}

Error withdrawn_error(const Transfer& receive, const Membership& members) {
  return Error(ErrorKind::Backend,
               describe(receive, members) + ": the sender gave it up");
}

Error mismatch_error(const Transfer& receive, int source, const Message& sent,
                     const Membership& members) {
  return Error(ErrorKind::Mismatch,
               describe(receive, members) + ": rank " + std::to_string(source) +
                   " sent " + name_of(sent.dtype) + ", count " +
                   std::to_string(sent.count),
               {source});
}

}  // namespace allhands
