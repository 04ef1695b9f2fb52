// The collectives, each straight through the arena. Every rank calls the same
// collective with matching arguments, and has the same set of allowed Ways; see Arena
// for what happens otherwise.
//
// A collective is a row, which the file of its algorithm defines. To add one: a number
// and a declaration here, and that file.
//
// Cost is given per rank for n ranks and B bytes of input; a round is one publish and
// one wait for all. Where counts may differ between ranks, all must know all of them;
// ranks that disagree get a Mismatch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allhands/arena/arena.hpp"
#include "allhands/arena/descriptor.hpp"
#include "allhands/arena/operation.hpp"
#include "allhands/arena/ways.hpp"

namespace allhands {

// Names of the collectives. Ranks send each other these numbers.
enum class Op : std::uint8_t {
  None,
  AllReduce,
  Broadcast,
  AllGather,
  Barrier,
  Reduce,
  ReduceScatter,
  Gather,
  Scatter,
  AllToAll,
  EmptyShared,  // no row: see SharedArrayMaker
  Scan,
  Exscan,
  AllReduceCoalesced,
  AllGatherCoalesced,
  ReduceScatterCoalesced,
  AllReduceSparse,
};

// The size of an operation whose ranks do not know it before they meet.
inline constexpr std::size_t kUnknownBytes = SIZE_MAX;

// One collective: how it is checked, described and carried out.
struct Collective {
  Op op;
  const char* name;   // torch.distributed's, or MPI's
  bool is_reduction;  // it has a ReduceOp, and perhaps a factor
  // Throws Value, Type or Unsupported naming what is wrong.
  void (*check)(const Operation&, int rank, int size);
  // What the ranks must agree on.
  Descriptor (*descriptor)(const Operation&);
  // The size that the choice of its ways depends on; see Case::bytes.
  std::size_t (*bytes)(const Operation&);
  // Runs it, after Arena::begin with that descriptor.
  void (*run)(Arena&, const Ways&, const Operation&);
};

// Returns when every rank has called it.
extern const Collective kBarrier;

// output = op over all ranks' inputs, in rank order, with the same bits on every rank.
// `input` may be `output`. In one phase, n * B bytes are read; in chunks of two rounds,
// about 5 B are read and written, whatever n is.
extern const Collective kAllReduce;

// input of rank `root` = op over all ranks' inputs; the others' are only read.
extern const Collective kReduce;

// output = op over all ranks' inputs[this rank]. Counts may differ between the inputs,
// not between ranks. About 3 B read and written.
extern const Collective kReduceScatter;

// input of every rank, which is also its output, = input of rank `root`. 2 B read and
// written.
extern const Collective kBroadcast;

// outputs[r] = input of rank r, on every rank; counts may differ between ranks.
// 2 (n + 1) B read and written.
extern const Collective kAllGather;

// The same on rank `root` only; the others have no outputs. Counts are all equal.
extern const Collective kGather;

// output = inputs[this rank] of rank `root`; the others have no inputs. Counts are all
// equal.
extern const Collective kScatter;

// outputs[r] = inputs[this rank] of rank r. Any counts, if sender and receiver agree.
// 4 B read and written.
extern const Collective kAllToAll;

// output = op over the inputs of the ranks up to this one, in rank order: the same bits
// as kAllReduce in a group of only these ranks. `input` may be `output`. One round for
// each chunk; n * B bytes read at most.
extern const Collective kScan;

// The same without this rank's own input. Rank 0 writes nothing.
extern const Collective kExscan;

// The same on lists of arrays of one dtype, as one operation on all of them in a row.
// Ranks must agree on the number of arrays and on the count of each.
//
// outputs = op over all ranks' inputs. Arrays may share memory: all are read before any
// is written. For sums, complex arrays may be mixed with real ones of their components'
// dtype.
extern const Collective kAllReduceCoalesced;

// outputs[r * m + i] = inputs[i] of rank r, for m inputs.
extern const Collective kAllGatherCoalesced;

// outputs[i] = op over all ranks' inputs[r * m + i] for this rank r, for m outputs.
extern const Collective kReduceScatterCoalesced;

// operation.sparse: rows of a dense array; their number may differ between ranks. The
// indices of all ranks are gathered. Then the rows that at least one rank has, B bytes,
// are reduced as in kAllReduce.
extern const Collective kAllReduceSparse;

inline constexpr const Collective* kCollectives[] = {&kBarrier,
                                                     &kAllReduce,
                                                     &kReduce,
                                                     &kReduceScatter,
                                                     &kBroadcast,
                                                     &kAllGather,
                                                     &kGather,
                                                     &kScatter,
                                                     &kAllToAll,
                                                     &kScan,
                                                     &kExscan,
                                                     &kAllReduceCoalesced,
                                                     &kAllGatherCoalesced,
                                                     &kReduceScatterCoalesced,
                                                     &kAllReduceSparse};

// Returns null if the number is not that of a collective.
const Collective* collective_of(Op op);

}  // namespace allhands
