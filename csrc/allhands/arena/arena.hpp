// One shared segment through which ranks of a group on one host run collectives without
// messages. It serves the whole group, or those of its ranks that share the segment.
//
// A rank here is a local one: its place among the ranks that the arena serves. Errors
// name ranks of the group. The caller of begin() passes in what the group knows of an
// operation: its sequence number and its descriptor (see Communicator).
//
// Every rank runs the same operations in the same order. An operation begins with each
// rank publishing its descriptor; `enter` waits until all have and compares them, so a
// mismatch is found before any output is written, at no cost beyond the cache line that
// has to be read anyway. All further synchronisation uses `publish`, which advances the
// rank's clock by one, and `wait`. Equal descriptors make every rank publish equally
// often, so clocks of different ranks can be compared.
//
// Each rank has two slots in which it stages data. Chunks use them in turn, and are
// numbered consecutively across all operations. Invariant: a rank writes its slot for
// chunk g only when no rank still reads its slot for chunk g - 2, which is the same
// memory. When an operation ends, all ranks are done with its last chunk but one. So
// the next operation may stage its first chunk at once; its second chunk waits for
// `enter`.
//
// Thread rule: one operation at a time per Arena object. Each rank has its own Arena
// object; several of them may share one SharedMemory in one process. Only abort() and
// leave() may be called while another thread is inside an operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "allhands/arena/layout.hpp"
#include "allhands/arena/meeting_tree.hpp"
#include "allhands/arena/shared_arrays.hpp"
#include "allhands/base/buffer.hpp"
#include "allhands/base/error.hpp"
#include "allhands/base/fork_mark.hpp"
#include "allhands/base/rank_text.hpp"
#include "allhands/base/shared_memory.hpp"
#include "allhands/base/wait.hpp"
#include "allhands/host/membership.hpp"
#include "allhands/host/placement.hpp"
#include "allhands/host/pulse.hpp"
#include "allhands/host/tuning.hpp"

namespace allhands {

// Whether a rank of this host has begun the group's operation number `sequence`, as far
// as that is told outside the group's shared memory. Takes some 100 us.
using HasBegun = std::function<bool(int rank, std::uint64_t sequence)>;

// Thrown out of an operation that another thread is to go on with, before all ranks
// have entered it. The peers do not notice.
struct Suspended {
  std::exception_ptr interruption;  // null: this thread could not carry it out at all
};

// One rank's end of the segment that collectives go through.
class Arena {
 public:
  // Prepares the first Layout(size).total_bytes() of fresh `memory` for a group. Call
  // it once, before any rank makes its Arena.
  static void prepare(SharedMemory& memory, int size, const Tuning& tuning);

  // Serves all ranks of the group.
  Arena(std::shared_ptr<SharedMemory> memory, Membership group,
        const LateNotice& late_notice = {});
  // Serves only `ranks`: ranks of the group, in the order of their local ranks. This
  // rank is among them. `has_departed` tells which local ranks left without an Arena,
  // `has_begun` which of those without one have begun an operation and wait for it.
  Arena(std::shared_ptr<SharedMemory> memory, Membership group, std::vector<int> ranks,
        const LateNotice& late_notice, HasDeparted has_departed = {},
        HasBegun has_begun = {});

  // Tells the others that this rank hands the segment out.
  void tell_maker() const;

  int rank() const { return rank_; }
  int size() const { return layout_.size(); }
  // The rank in the group that has this local rank.
  int group_rank(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  const Tuning& tuning() const { return tuning_; }
  // How many bytes a rank stages in one round; a multiple of 64.
  std::size_t chunk_bytes() const { return chunk_bytes_; }
  // The sequence number of the current operation.
  std::uint64_t sequence() const { return sequence_; }

  // Begins the group's operation number `sequence`, which is higher than all before.
  // Throws the error that broke the group, if a local rank has reported one. Returns
  // false if the operation was suspended and now goes on; the caller must then not
  // repeat what it has told the peers. `may_suspend`: until all ranks have entered, an
  // interrupt suspends the operation. Such an operation must tell the peers nothing
  // before that except what `enter` stages.
  bool begin(std::uint64_t sequence, const Descriptor& descriptor, const Limits& limits,
             bool may_suspend = false);
  // Begins a part of this operation, with a descriptor of its own. Errors tell of the
  // operation.
  void begin_part(const Descriptor& descriptor, const Limits& limits);
  // Where `rank` stages the operation's i-th chunk, chunk_bytes() at most.
  std::byte* slot(int rank, std::uint64_t i) const;
  // The same for an operation that stages `bytes` per rank in total. If they fit, they
  // are staged in the rank's Line.
  std::byte* staging(int rank, std::uint64_t i, std::size_t bytes) const {
    return bytes <= kInlineBytes ? line(rank).payload : slot(rank, i);
  }
  // PREMUL_SUM's factor. Set it before enter; read the peers' factors after it.
  void set_factor(const Factor& factor);
  const Factor& factor(int rank) const;

  // Makes the operation's first publication, and returns when every rank has entered.
  // Throws Mismatch if the ranks' descriptors differ (the next operation works again),
  // and Suspended.
  void enter();
  // The same, after `stage` has written data for the peers. It is not called again once
  // the peers may have seen that data and gone on.
  template <class Stage>
  void enter(Stage stage) {
    if (!is_suspended_) stage();
    enter();
  }
  // The same for a result of up to kInlineBytes that one rank makes from what all have
  // staged, and that all ranks get. Returns where the result is; it stays there until
  // this rank publishes again. Only for ranks that meet in a tree.
  using Make = std::function<void(std::byte* result)>;
  template <class Stage>
  const std::byte* enter_for_result(Stage stage, const Make& make) {
    if (!is_suspended_) stage();
    enter_with(&make);
    return control(rank()).released.payload;
  }
  // Sets how many chunks the operation uses; needed if there is more than one.
  void use_chunks(std::uint64_t count) { next_chunk_ = first_chunk_ + count; }
  // Call after enter: the operation goes on as if it had not staged anything yet. It
  // may enter again.
  void start_over() { first_chunk_ = next_chunk_++; }

  // The operation that `rank` has entered. Call after enter, also if that threw
  // Mismatch.
  const Descriptor& descriptor(int rank) const { return line(rank).descriptor; }

  std::uint32_t clock() const { return clock_; }
  // Advances this rank's clock. A rank that waits for the new clock sees everything
  // that this rank wrote before.
  std::uint32_t publish();
  // Returns when the clock of `rank` has reached `clock`. Throws RankFailed, Timeout or
  // Interrupted, and reports it to the local ranks; or throws the error that one of
  // them has reported.
  void wait(int rank, std::uint32_t clock);
  void wait_all(std::uint32_t clock);
  // Publishes, and returns when every rank has.
  void meet() {
    publish();
    gather_and_release(false, nullptr);
  }
  // Returns when every rank has said that it no longer uses another rank's array.
  // Throws if the group was given up meanwhile: a rank that gave up in this wait may
  // have changed its array while others still read it.
  void part_from_peers();

  // Tells the local ranks that the group is broken: the wait that each is in, and its
  // next operation, throw `error` as reported by this rank. Only the first reported
  // error is kept.
  void fail(const Error& error);
  bool has_failed() const;
  // Whether this process is a child of the rank's, and so no rank.
  bool is_forked() const { return process_.is_forked(); }
  // In every wait that lasts, calls `elsewhere` to ask whether something outside this
  // arena broke the group. If so, the local ranks are told.
  void watch(std::function<std::optional<Error>()> elsewhere) {
    elsewhere_ = std::move(elsewhere);
  }
  // The failure that a local rank has reported, if any.
  std::optional<Error> told_failure() const;
  // Marks this rank as gone for good; peers that wait for it throw RankFailed.
  void leave();

  // Whether every rank can read the others' memory. All ranks have the same answer, and
  // know it once they have entered the group's first operation.
  bool can_read_peers() const { return can_read_peers_.value_or(false); }
  // Copies from `address` in the memory of `rank`. That rank must not change the data
  // until this one publishes. Throws RankFailed, or the error that broke the group.
  void read_peer(int rank, std::uint64_t address, void* to, std::size_t bytes);
  // The same for an array of any layout.
  void read_peer(int rank, std::uint64_t address, const Buffer& to);

  // Copies to `address` in the memory of `rank`: a slice of this rank's handover, which
  // `rank` waits for. Returns false if the slice cannot be written; no other slice will
  // be either.
  bool write_peer(int rank, std::uint64_t address, void* from, std::size_t bytes);
  bool can_write_peers() const { return can_write_peers_; }
  // The handover of what `rank` sends.
  Handover& handover(int rank) const { return control(rank).handover; }
  bool is_alive(int rank) const { return allhands::is_alive(process(rank)); }

  // Private memory of this rank for the current operation; it is kept for the next one.
  std::byte* scratch(std::size_t bytes) {
    if (scratch_.size() < bytes) scratch_.resize(bytes);
    return scratch_.data();
  }

  // Ownership is shared with the arrays in it, which may outlive the group.
  const std::shared_ptr<SharedArrays>& shared_arrays() const { return shared_arrays_; }

  // The error for impossible data in the shared memory of `rank`.
  Error nonsense_of(int rank) const;

  // "all_reduce(float32, count 10, SUM) #17 on group 'dp'", for messages.
  std::string describe_call() const;
  // allhands::tell_of() of local ranks, for messages.
  template <class One, class FactOf>
  std::string tell_of(const std::vector<int>& local, One one, FactOf fact_of,
                      const std::string& separator = ", ") const {
    const auto number_of = [this](int rank) { return group_rank(rank); };
    return allhands::tell_of(local, group_.size(), number_of, one, fact_of, separator);
  }

 private:
  Line& line(int rank) const { return control(rank).lines[parity_]; }
  RankControl& control(int rank) const {
    return layout_.control(memory_->data(), rank);
  }
  SharedFailure& failure() const { return layout_.header(memory_->data()).failure; }
  const ProcessIdentity& process(int rank) const {
    return group_.process(group_rank(rank));
  }
  // "rank 3 (pid 4711)"
  std::string describe(int rank) const { return group_.describe(group_rank(rank)); }
  // "rank 3 (this process)"
  std::string describe_self() const;
  std::vector<int> group_ranks(std::vector<int> ranks) const;

  void enter_with(const Make* make);
  bool gather_and_release(bool is_entering, const Make* make);
  bool gather(bool is_entering);
  Signal& passed_up(int rank) const;
  std::vector<int> holding_up(std::uint32_t clock) const;
  void tell_place() const;
  void arrange(bool have_met);
  void check_match() const;
  void let_peers_read();
  void try_to_read_peers();
  void wait(int rank, Signal& theirs, std::uint32_t clock);
  void wait_asleep(int rank, Signal& theirs, std::uint32_t clock);
  void look_around(const Wait& wait, std::uint32_t clock);
  WaitEnd look_at_limits(const Wait& wait);
  std::vector<int> gone_of(std::uint32_t clock);
  bool is_gone(int rank, Pulse::Duration now) const;
  std::string late_text(std::uint32_t clock, Deadline::Duration waited) const;
  void throw_failure() const;
  [[noreturn]] void fail_and_throw(ErrorKind kind, const std::string& problem,
                                   const std::vector<int>& local);
  void wait_until_told() const;
  void wake_everybody() const;
  void wake_waiters_for(int rank) const;
  void throw_timeout(std::uint32_t clock);
  std::vector<int> needed(std::uint32_t clock) const;
  std::vector<int> watched(std::uint32_t clock, int num_others);
  std::vector<int> missing(std::uint32_t clock) const;
  void tell_awaited(int rank, const Signal& theirs, std::uint32_t clock);
  bool is_held_up(int rank) const;
  bool awaits_memory(int rank) const;
  int stopped_maker() const;
  std::vector<int> without_held_up(const std::vector<int>& ranks) const;
  std::string describe_wait(Deadline::Duration waited,
                            const std::vector<int>& absent) const;
  std::string describe_missing(const std::vector<int>& ranks) const;

  const ForkMark process_;
  std::shared_ptr<SharedMemory> memory_;
  const Membership group_;
  const std::vector<int> ranks_;  // of the group, by local rank
  const int rank_;
  LateNotice late_notice_;
  HasDeparted has_departed_;
  HasBegun has_begun_;
  std::function<std::optional<Error>()> elsewhere_;  // may be none
  Layout layout_;
  Tuning tuning_;
  std::size_t chunk_bytes_;
  std::unique_ptr<Placement> placement_;
  std::optional<MeetingTree> tree_;       // of many ranks
  std::optional<std::uint32_t> meeting_;  // the clock of the tree meeting in progress
  // What the others read first as a test, and whether all could read.
  const std::unique_ptr<const std::uint64_t> probe_;
  std::optional<bool> can_read_peers_;
  bool can_write_peers_ = true;
  std::uint64_t sequence_ = 0;
  Descriptor called_;       // of the operation
  Descriptor descriptor_;   // of its current part
  std::size_t parity_ = 0;  // parity of the number of operations run here
  std::uint32_t clock_ = 0;
  std::uint32_t entered_at_ = 0;  // the clock of the meeting that began the operation
  int next_watched_ = rank_;      // see watched()
  std::uint64_t first_chunk_ = 0;
  std::uint64_t next_chunk_ = 0;
  std::vector<std::byte> scratch_;
  const std::shared_ptr<SharedArrays> shared_arrays_ = std::make_shared<SharedArrays>();
  Limits limits_;
  bool may_suspend_ = false;   // until all have entered
  bool is_suspended_ = false;  // entered, but not yet by all
};

}  // namespace allhands
