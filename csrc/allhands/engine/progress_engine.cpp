#include "allhands/engine/progress_engine.hpp"

#include <algorithm>
#include <ranges>
#include <set>
#include <string>
#include <utility>

#include "allhands/base/counted.hpp"
#include "allhands/base/rank_text.hpp"
#include "allhands/base/thread_mark.hpp"
#include "allhands/engine/transfer_text.hpp"
#include "allhands/host/wait_awake.hpp"

namespace allhands {
namespace {

// Turns of a busy wait between two looks at the clock, which cost more than a turn.
constexpr unsigned kTurnsPerLook = 16;

}  // namespace

ProgressEngine::ProgressEngine(std::unique_ptr<Transport> transport,
                               const Membership& members, const Tuning& tuning,
                               ServedGroup group, const LateNotice& late_notice)
    : transport_(std::move(transport)),
      members_(members),
      tuning_(tuning),
      group_(std::move(group)),
      late_notice_(late_notice),
      waiting_(group_.num_waiting != nullptr ? *group_.num_waiting : own_waiting_),
      watch_(*transport_, members_, group_.failure),
      endpoint_(*transport_, members_, tuning_, watch_),
      is_told_(static_cast<std::size_t>(members.size())),
      thread_([this] { return waiting_.load(std::memory_order_relaxed) != 0; },
              [this] { turn(); }) {}

ProgressEngine::~ProgressEngine() {
  leave(Error(ErrorKind::Backend, "group '" + members_.name + "' was destroyed"));
  join();
}

// Runs body(ended) under the lock, then tells the threads that wait for what it ended.
// If body throws anything but an error of the caller's, the group is broken, and this
// returns false.
template <class Body>
bool ProgressEngine::step(Body body) {
  Ended ended;
  std::exception_ptr cause, callers;
  try {
    const std::lock_guard lock(mutex_);
    body(ended);
  } catch (const LinkError&) {
    cause = std::current_exception();
  } catch (const Error&) {
    callers = std::current_exception();
  } catch (const std::exception&) {
    cause = std::current_exception();
  }
  complete(ended);
  if (callers) std::rethrow_exception(callers);
  if (cause) break_off(cause);
  return !cause;
}

// Takes one turn with one peer.
bool ProgressEngine::step_on(int peer) {
  return step([&](Ended& ended) { endpoint_.progress(peer, ended); });
}

// Returns true if something moved.
bool ProgressEngine::progress() {
  // If another thread has looked since, it tells this one what it finds.
  if (transport_->num_events() == scanned_ && !endpoint_.has_part()) return false;
  bool moved = false;
  step([&](Ended& ended) {
    scanned_ = transport_->num_events();
    moved = endpoint_.progress(ended);
  });
  return moved;
}

void ProgressEngine::complete(Ended& ended) {
  for (const TransferPtr& transfer : ended.to_announce) {
    const ThreadMark in_callback(group_.mark);
    transfer->work.announce();
  }
  // Other threads of this rank may sleep until these transfers end.
  if (ended.is_any && sleepers_.load(std::memory_order_seq_cst) != 0)
    transport_->wake_self();
}

// Handles an unexpected error: from now on no transfer can be trusted to end.
void ProgressEngine::break_off(std::exception_ptr cause) {
  std::string text = "messages cannot be moved any more";
  try {
    std::rethrow_exception(cause);
  } catch (const std::exception& error) {
    text = error.what();
  }
  group_.fail(Error(ErrorKind::Backend, text));  // before peers see the abort
  leave(Error(ErrorKind::Backend,
              "group '" + members_.name + "' is broken since: " + text),
        Presence::Aborted);
}

void ProgressEngine::throw_ended() {
  const std::lock_guard lock(mutex_);
  throw ended_.value_or(Error(ErrorKind::Backend, "messages cannot be moved any more"));
}

bool ProgressEngine::send_at_once(const Buffer& buffer, int to, Tag tag) {
  bool is_sent = false;
  step([&](Ended& ended) {
    check_sendable(buffer, to, tag, ended);
    is_sent = endpoint_.send_at_once(buffer, to, tag);
  });
  return is_sent;
}

void ProgressEngine::send(const Buffer& buffer, int to, Tag tag, const Limits& limits) {
  if (send_at_once(buffer, to, tag))
    return void(progress());  // the peer may have refused an earlier message
  if (to == members_.rank) check_counterpart({true, buffer, to, tag, limits.deadline});
  wait(post_send(buffer, to, tag, limits.deadline), limits, AtEnd::GiveUp);
}

int ProgressEngine::recv(const Buffer& buffer, int from, Tag tag,
                         const Limits& limits) {
  if (recv_at_once(buffer, from, tag)) return from;
  if (from == members_.rank)
    check_counterpart({false, buffer, from, tag, limits.deadline});
  const TransferPtr receive = post_recv(buffer, from, tag, limits.deadline);
  wait(receive, limits, AtEnd::GiveUp);
  return receive->source;
}

// The fast path of a program that waits for each small message. It returns false, and
// nothing has happened, unless the message is there or comes within a spin, is the next
// one from its source and fits, and no other message waits to be matched. The message
// goes from its record to its array without a Transfer.
bool ProgressEngine::recv_at_once(const Buffer& buffer, int from, Tag tag) {
  if (from == kAnySource) return false;
  const Link& link = transport_->link(from);
  for (std::uint64_t i = 0; !link.has_record(); ++i) {
    if (i >= tuning_.spins && i >= tuning_.spins_for(buffer.num_bytes())) return false;
    pause_cpu();
  }
  bool is_received = false;
  step([&](Ended&) {
    is_received = !ended_ && endpoint_.recv_at_once(buffer, from, tag);
  });
  return is_received;
}

void ProgressEngine::check_counterpart(const Transfer& transfer) {
  bool has_counterpart = false;
  step([&](Ended& ended) {
    has_counterpart = endpoint_.has_counterpart(transfer, ended);
  });
  if (has_counterpart) return;
  throw Error(ErrorKind::Value,
              describe(transfer, members_) + ": " +
                  (transfer.is_send ? "destination" : "source") +
                  " rank should not be the same as the rank of the current process, "
                  "which would wait for itself; " +
                  (transfer.is_send ? "post the irecv first, or use isend or sendrecv"
                                    : "send or isend the message first, or use irecv"));
}

// Checks a message that is about to be sent.
void ProgressEngine::check_sendable(const Buffer& buffer, int to, Tag tag,
                                    Ended& ended) {
  if (ended_) throw *ended_;
  const bool is_gone = watch_.was_gone_lately(to);
  if (is_gone) endpoint_.progress(to, ended);  // reads what it sent before it went
  if (tag.context == Context::Program) endpoint_.throw_refusal(to);
  if (!is_gone) return;
  if (const auto abortion = watch_.abortion(to)) throw *abortion;
  is_told_[static_cast<std::size_t>(to)] = true;
  throw gone_error(Transfer(true, buffer, to, tag, Deadline::never()), {to},
                   watch_.end_of(to), members_);
}

TransferPtr ProgressEngine::post_send(const Buffer& buffer, int to, Tag tag,
                                      Deadline deadline, FlightSlot* record) {
  auto send = std::make_shared<Transfer>(true, buffer, to, tag, deadline, record);
  const bool is_posted = step([&](Ended& ended) {
    check_sendable(buffer, to, tag, ended);
    endpoint_.post_sends({&send, 1}, ended);
  });
  if (!is_posted) throw_ended();
  return send;
}

std::vector<TransferPtr> ProgressEngine::post_sends(std::span<const Buffer> buffers,
                                                    int to, Tag tag,
                                                    Deadline deadline) {
  std::vector<TransferPtr> sends;
  for (const Buffer& buffer : buffers)
    sends.push_back(std::make_shared<Transfer>(true, buffer, to, tag, deadline));
  const bool is_posted = step([&](Ended& ended) {
    check_sendable(buffers.front(), to, tag, ended);
    endpoint_.post_sends(sends, ended);
  });
  if (!is_posted) throw_ended();
  return sends;
}

TransferPtr ProgressEngine::post_recv(const Buffer& buffer, int from, Tag tag,
                                      Deadline deadline, FlightSlot* record, Fit fit) {
  auto receive = std::make_shared<Transfer>(false, buffer, from, tag, deadline, record);
  receive->fit = fit;
  const bool is_posted = step([&](Ended& ended) {
    if (ended_) throw *ended_;
    if (receive->tag.context == Context::Program)
      for (const int peer : endpoint_.open())
        if (from == peer || from == kAnySource) endpoint_.throw_refusal(peer);
    endpoint_.post_recv(receive, ended);
  });
  if (!is_posted) throw_ended();
  return receive;
}

TransferPtr ProgressEngine::probe_now(int from, Tag tag) {
  TransferPtr probe = post_recv({}, from, tag, Deadline::never(), nullptr, Fit::Look);
  if (!probe->work.is_completed()) look_around();
  bool is_left = false;
  step([&](Ended& ended) {
    is_left = !probe->work.is_completed();
    endpoint_.withdraw(probe, Error(ErrorKind::Backend, "nothing has come"), ended);
  });
  if (is_left) return nullptr;
  probe->work.wait({Deadline::never()});
  return probe;
}

void ProgressEngine::wait(const TransferPtr& transfer, const Limits& limits,
                          AtEnd at_end) {
  const Counted counted(waiting_);
  Wait wait(limits, &late_notice_);
  bool is_quiet = false;  // the last sleep ended without news
  for (unsigned turns = 1; !transfer->work.is_completed(); ++turns) {
    // A record can be seen in its link before an event tells of it.
    if (has_record_from(transfer->peer)) step_on(transfer->peer);
    if (transfer->work.is_completed()) break;
    const std::uint32_t seen = transport_->num_events();
    if (progress()) is_quiet = false;
    if (transfer->is_send) end_lent(transfer->peer);
    const bool has_news = !is_quiet && wait_for_news(seen, *transfer);
    if (!has_news) sleep(seen, transfer.get(), wait.slice());
    is_quiet = !has_news && transport_->num_events() == seen;
    if (has_news && turns % kTurnsPerLook != 0) continue;
    if (!wait.is_slice_over()) continue;
    look_around();
    if (transfer->work.is_completed()) break;
    const WaitEnd end = look_at_limits(wait, transfer, at_end);
    if (end == WaitEnd::None) {
      wait.tell_if_late([&](Deadline::Duration waited) {  // a wait() may have no limit
        return late_text(*transfer, waited,
                         std::min(limits.deadline.limit(), transfer->deadline.limit()),
                         members_);
      });
      continue;
    }
    if (at_end == AtEnd::GoOn) return transfer->work.wait(limits);
    const Error why = ended_error(end, *transfer, limits.deadline.limit(), members_);
    if (at_end == AtEnd::Leave) throw why;
    tell_and_give_up(transfer, why);
    break;
  }
  // It has ended, or another thread is about to complete it.
  transfer->work.wait({Deadline::never()});
}

// An interrupt that gives the transfer up is thrown once nothing uses its memory. In a
// forked child the transfer is the parent's, which goes on with it.
WaitEnd ProgressEngine::look_at_limits(const Wait& wait, const TransferPtr& transfer,
                                       AtEnd at_end) {
  try {
    return wait.look();
  } catch (const Error& interruption) {
    if (at_end != AtEnd::GiveUp || process_.is_forked()) throw;
    tell_and_give_up(transfer, interruption);
    transfer->work.wait({Deadline::never()});
    throw;  // it has succeeded; the caller's language has its exception all the same
  }
}

// For a caller that gets the error. Earlier messages may be lost, too.
void ProgressEngine::tell_and_give_up(const TransferPtr& transfer, const Error& error) {
  give_up({&transfer, 1}, error);
  if (!transfer->is_send) return;
  const std::lock_guard lock(mutex_);
  is_told_[static_cast<std::size_t>(transfer->peer)] = true;
}

// Waits awake. Returns false if no news came and it is time to sleep.
bool ProgressEngine::wait_for_news(std::uint32_t seen, const Transfer& transfer) {
  const Link* const link =
      transfer.peer == kAnySource ? nullptr : &transport_->link(transfer.peer);
  const auto has_news = [&] {
    return transfer.work.is_completed() || (link != nullptr && link->has_record()) ||
           endpoint_.has_part() || transport_->num_events() != seen;
  };
  Placement* const placement = transport_->placement();
  const std::unique_lock lock(placement_mutex_, std::try_to_lock);
  // If another thread of this rank is using the placement, this one does not.
  if (placement == nullptr || !lock) return wait_awake(tuning_, has_news);
  if (wait_awake(tuning_, has_news, [&] { placement->yield(); })) return true;
  placement->leave_seat();
  return false;
}

// Ends the sends to this peer, or to kAnySource, that were written.
void ProgressEngine::end_lent(int peer) {
  step([&](Ended& ended) { endpoint_.end_lent(peer, ended); });
}

// `transfer` is what the caller waits for; may be null.
void ProgressEngine::sleep(std::uint32_t seen, const Transfer* transfer,
                           Deadline::Duration limit) {
  end_lent(kAnySource);
  const Counted counted(sleepers_);
  // Either another thread that ends the transfer sees this one among the sleepers, or
  // this one sees the end.
  const bool has_ended = transfer != nullptr && transfer->work.is_completed();
  if (!has_ended) transport_->sleep(seen, limit);
}

void ProgressEngine::drive(const TransferPtr& transfer) {
  // The thread may be asleep, and no event tells it of a send that was written at once.
  if (transfer->is_send && !transfer->work.is_completed()) end_lent(transfer->peer);
  try {
    thread_.drive(transfer);
  } catch (const Error& error) {
    const Error why(error.kind(), describe(*transfer, members_) + ": " + error.what());
    give_up({&transfer, 1}, why);
    throw why;
  }
}

void ProgressEngine::turn() {
  try {
    const std::uint32_t seen = transport_->num_events();
    const bool has_others = waiting_.load(std::memory_order_relaxed) != 0;
    if (!has_others && !progress()) sleep(seen, nullptr, Wait::kSlice);
    if (!lookout_.is_slice_over()) return;
    look_around();
    for (const TransferPtr& transfer : thread_.expired())
      give_up({&transfer, 1},
              timeout_error(*transfer, transfer->deadline.limit(), members_));
  } catch (const std::exception&) {
    break_off(std::current_exception());
  }
}

void ProgressEngine::look_around() {
  if (const auto abortion = watch_.abortion()) {
    {
      const std::lock_guard lock(mutex_);
      for (TransferPtr& transfer : endpoint_.pending())
        lost_.push_back(std::move(transfer));
    }
    // Ranks that wait for this one hear why: those of this host by what it notes first.
    group_.fail(abortion->retold(to_pass_on(abortion->what())));
    return leave(*abortion, Presence::Aborted);
  }
  if (const auto gone = gone_counterparts(); !gone.empty()) fail_with(gone);
}

// The ranks that are gone among those that this rank's transfers wait for. Where a
// transfer waits for any rank, these are all others, if none is left.
std::vector<int> ProgressEngine::gone_counterparts() {
  std::set<int> ranks;
  {
    const std::lock_guard lock(mutex_);
    for (const TransferPtr& transfer : endpoint_.pending())
      ranks.insert(transfer->other());
  }
  if (ranks.erase(kAnySource) != 0 && watch_.is_alone())
    for (int peer = 0; peer < members_.size(); ++peer) ranks.insert(peer);
  ranks.erase(members_.rank);
  std::erase_if(ranks, [this](int peer) { return !watch_.was_gone_lately(peer); });
  return {ranks.begin(), ranks.end()};
}

void ProgressEngine::fail_with(const std::vector<int>& gone) {
  const bool nobody_left = static_cast<int>(gone.size()) + 1 == members_.size();
  step([&](Ended& ended) {
    for (const int peer : gone) {
      endpoint_.progress(peer, ended);  // reads what they sent before they went
      endpoint_.end_lent(peer, ended);  // what was written has been sent
    }
    for (const TransferPtr& transfer : endpoint_.pending()) {
      const int peer = transfer->other();
      const bool any = peer == kAnySource;
      if (any ? !nobody_left : std::ranges::find(gone, peer) == gone.end()) continue;
      const std::vector<int> theirs = any ? gone : std::vector<int>{peer};
      const Error error =
          gone_error(*transfer, theirs, watch_.end_of(theirs[0]), members_);
      endpoint_.withdraw(transfer, error, ended);
      lost_.push_back(transfer);
    }
  });
}

void ProgressEngine::give_up(std::span<const TransferPtr> transfers,
                             const Error& error) {
  if (process_.is_forked()) return;  // they are the parent's
  step([&](Ended& ended) {
    // The last one first: what is before it may go on meanwhile.
    for (const TransferPtr& each : std::views::reverse(transfers))
      endpoint_.withdraw(each, error, ended);
  });
}

void ProgressEngine::flush(const Limits& limits) {
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return throw_untold_sends();  // nothing more can be received
  }
  const Wait wait(limits);
  while (true) {
    const std::uint32_t seen = transport_->num_events();
    progress();
    const std::vector<int> waiting = unserved_peers();
    if (waiting.empty() || watch_.failure()) break;
    if (!limits.deadline.is_expired()) sleep(seen, nullptr, wait.slice());
    if (wait.look() == WaitEnd::None) continue;
    const std::string ranks = members_.describe(waiting);
    throw Error(ErrorKind::Timeout,
                "group " + members_.quoted() + ": messages to " + ranks +
                    " timed out: they were not received before this rank left",
                waiting);
  }
  throw_losses();
}

// Peers that could not get everything if this rank were gone.
std::vector<int> ProgressEngine::unserved_peers() {
  std::vector<int> waiting;
  const std::lock_guard lock(mutex_);
  for (const int peer : endpoint_.open())
    if (!endpoint_.is_safe_to_leave(peer) && !watch_.was_gone_lately(peer))
      waiting.push_back(peer);
  std::sort(waiting.begin(), waiting.end());
  return waiting;
}

// Throws for messages that nobody will receive, unless this rank has been told.
void ProgressEngine::throw_losses() {
  bool has_sends = false;
  {
    const std::lock_guard lock(mutex_);
    has_sends = endpoint_.has_sends();
  }
  if (has_sends) look_around();  // the sends are to peers that are gone
  const std::lock_guard lock(mutex_);
  for (const int peer : endpoint_.open()) endpoint_.throw_refusal(peer);
  throw_untold_sends();
  for (const TransferPtr& transfer : lost_)
    if (transfer->other() != kAnySource && !transfer->work.has_untold_error())
      is_told_[static_cast<std::size_t>(transfer->other())] = true;
  std::vector<int> lost;
  if (watch_.failure()) return;
  for (const int peer : endpoint_.open())  // who is gone will receive no more
    if (!is_told_[static_cast<std::size_t>(peer)] && peer != members_.rank &&
        watch_.is_gone(peer) && endpoint_.has_unreceived(peer))
      lost.push_back(peer);
  std::sort(lost.begin(), lost.end());
  if (lost.empty()) return;
  throw Error(ErrorKind::RankFailed,
              "group " + members_.quoted() + ": small messages were sent to " +
                  members_.describe(lost) +
                  ", which died or left the group without receiving them",
              lost);
}

// Throws for sends that the program may believe to have succeeded.
void ProgressEngine::throw_untold_sends() {
  for (const TransferPtr& transfer : lost_)
    if (transfer->is_send && transfer->work.has_untold_error())
      std::rethrow_exception(transfer->work.error());
}

void ProgressEngine::leave(const Error& reason, Presence how) {
  if (process_.is_forked()) return;  // the parent stays
  thread_.stop();
  step([&](Ended& ended) {
    if (ended_) return;
    ended_ = reason;
    endpoint_.end_all(reason, ended);
    // As it was first told, without the words that calls add.
    transport_->leave(how, watch_.failure().value_or(reason));
  });
  transport_->wake_self();
}

}  // namespace allhands
