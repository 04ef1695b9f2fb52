#include "allhands/host/tuning.hpp"

#include "allhands/base/error.hpp"

namespace allhands {

Tuning Tuning::for_ranks(int size, int cpus) {
  const bool is_crowded = size > cpus;
  return {
      // Of a reduction: the inputs of all ranks together. Below this size every rank
      // reduces everything itself, which costs less than a second meeting (about 0.3
      // us, or some 10 us where ranks outnumber the CPUs).
      .one_phase_bytes = std::uint64_t{32} << 10,
      // The bytes that a rank stages before the ranks meet. Fewer keep both ranks'
      // slots in the second-level cache (two of 256 KiB each); more mean fewer
      // meetings, which cost a turn of every rank where ranks outnumber the CPUs.
      .chunk_bytes = std::uint64_t{is_crowded ? 1024u : 256u} << 10,
      // The bytes that a rank contributes. Below this size the copies through the slots
      // cost less than the meeting at which ranks learn that their arrays are shared.
      .direct_bytes = std::uint64_t{16} << 10,
      // The bytes that one rank gets from another. From this size on a system call
      // reads them from the other process: one copy instead of two, for 0.5 us and 50
      // to 100 ns per page of 4 KiB. Where ranks take turns, the system call's own
      // turns cost more.
      .read_bytes = std::uint64_t{is_crowded ? 256u : 64u} << 10,
      // The same if one rank alone reads these pages, from the root's array or for it:
      // in a scatter, in a gather, and in a broadcast of two ranks. In the last two
      // both sides copy half of it.
      .read_rooted_bytes = std::uint64_t{is_crowded ? 256u : 64u} << 10,
      // The same for a broadcast to several ranks, which read the same pages, and wait
      // for each other at each page.
      .read_broadcast_bytes = std::uint64_t{is_crowded ? 1u << 30 : 64u} << 10,
      // The same for all_reduce, as the bytes that a rank contributes. A rank can
      // compute directly on what is in the slots, but must first read what is elsewhere
      // into memory of its own; that pays if the slots' memory is the limit.
      .read_reduce_bytes = std::uint64_t{is_crowded ? 1u << 20 : 4u} << 20,
      // The same for reduce_scatter, in which each rank reads once what no rank has
      // just written: 0.75 of the time for 256 KiB to 1 MiB. Where ranks take turns it
      // takes longer there, and 0.85 of the time for 16 MiB.
      .read_reduce_scatter_bytes = std::uint64_t{is_crowded ? 16384u : 128u} << 10,
      // Outputs of a rank of this size and more use the slots again: two ranks then
      // copy at the same time, and the kernel does not write past the caches. This does
      // not hold where both sides copy by system calls, which takes 0.75 of the time at
      // 64 MiB. The arrays of all_reduce are read twice and count twice: at 32 MiB the
      // slots take 0.85 to 0.95 of the time, at 20 MiB 1.1 times as long.
      .read_most_bytes = std::uint64_t{is_crowded ? 1u << 20 : 48u} << 20,
      // As read_bytes and read_most_bytes for all_to_all, as the bytes that a rank
      // sends
      // in total. A rank copies nothing that it stages for itself too, so the slots
      // gain
      // nothing here at any size.
      .read_all_to_all_bytes = std::uint64_t{is_crowded ? 256u : 64u} << 10,
      .read_most_all_to_all_bytes = std::uint64_t{1} << 40,
      // From this size on, copies to outputs go past the caches: 1.1 times as fast at 8
      // to 16 MiB, 1.2 times at 32 MiB, and slower where the caches hold everything.
      .stream_bytes = std::uint64_t{8} << 20,
      // The largest message that goes with its header: up to this size a second copy
      // costs less than the round trip of an offer.
      .eager_bytes = std::uint64_t{32} << 10,
      // The size of the pieces in which a large message goes through the ring: small
      // enough that several fit into it, large enough that headers and doorbells cost
      // little.
      .piece_bytes = std::uint64_t{32} << 10,
      // For a message that waits for its receive: from this size on both ranks copy it
      // directly from array to array. That is one copy instead of two, and half of it
      // each; there is no size from which on the ring is faster.
      .handover_bytes = std::uint64_t{32} << 10,
      // The part of such a message, and of collectives that both sides copy, that a
      // rank copies by one system call: few calls, at 0.5 us each, and both ranks end
      // at about the same time. From 128 KiB to 1 MiB it makes no difference in small
      // pages; in large ones 1 MiB takes 0.8 to 0.9 of the time of 256 KiB.
      .slice_bytes = std::uint64_t{1} << 20,
      // From this number of ranks on they meet in a tree. Where they take turns a rank
      // then sleeps once for an operation, and else for several of the others: with 32
      // ranks on 2 CPUs, which do other work besides, an all_reduce of 8 bytes takes
      // 0.6 of the CPU time and a broadcast 0.75, with 24 both 0.75 to 1, with 16 as
      // much. 33 is computed, not measured; see docs/design/many-ranks.md.
      .tree_ranks = is_crowded ? 24u : 33u,
      // A pause takes 10 to 65 ns, a yield 200 to 300 ns on an idle machine. A long
      // spin gains nothing over yields if all ranks run. It loses whole time slices if
      // one rank does not, because something else wants its CPU. 50 pauses suffice for
      // a peer that is on its way. Where ranks take turns the peer mostly does not run:
      // up to 6 pauses do no harm, 10 make a barrier of 4 ranks on 2 CPUs take 10 %
      // longer. The yields suffice for a peer that copies some MiB; being woken costs
      // some 30 us.
      .spins = is_crowded ? 3u : 50u,
      .yields = 5000,
      // See Placement. A look costs less than a yield, a move some 20 us, and an uneven
      // placement up to half of the time. Where each rank has a CPU the kernel evens it
      // out too, but some 20 ms later.
      .yields_per_look = 128,
  };
}

std::span<const Tuning::Entry> Tuning::entries() {
  static constexpr Entry kEntries[] = {
      {"one_phase_bytes", &Tuning::one_phase_bytes, 0, std::uint64_t{1} << 20},
      {"chunk_bytes", &Tuning::chunk_bytes, 4096, std::uint64_t{1} << 20},
      {"direct_bytes", &Tuning::direct_bytes, 64, std::uint64_t{1} << 40},
      {"read_bytes", &Tuning::read_bytes, 4096, std::uint64_t{1} << 40},
      {"read_rooted_bytes", &Tuning::read_rooted_bytes, 4096, std::uint64_t{1} << 40},
      {"read_broadcast_bytes", &Tuning::read_broadcast_bytes, 4096,
       std::uint64_t{1} << 40},
      {"read_reduce_bytes", &Tuning::read_reduce_bytes, 4096, std::uint64_t{1} << 40},
      {"read_reduce_scatter_bytes", &Tuning::read_reduce_scatter_bytes, 4096,
       std::uint64_t{1} << 40},
      {"read_most_bytes", &Tuning::read_most_bytes, 4096, std::uint64_t{1} << 40},
      {"read_all_to_all_bytes", &Tuning::read_all_to_all_bytes, 4096,
       std::uint64_t{1} << 40},
      {"read_most_all_to_all_bytes", &Tuning::read_most_all_to_all_bytes, 4096,
       std::uint64_t{1} << 40},
      {"stream_bytes", &Tuning::stream_bytes, 4096, std::uint64_t{1} << 40},
      {"eager_bytes", &Tuning::eager_bytes, 0, std::uint64_t{64} << 10},
      {"piece_bytes", &Tuning::piece_bytes, 4096, std::uint64_t{64} << 10},
      {"handover_bytes", &Tuning::handover_bytes, 1, std::uint64_t{1} << 40},
      {"slice_bytes", &Tuning::slice_bytes, 4096, std::uint64_t{64} << 20},
      {"tree_ranks", &Tuning::tree_ranks, 2, std::uint64_t{1} << 40},
      {"spins", &Tuning::spins, 0, 1'000'000},
      {"yields", &Tuning::yields, 0, 1'000'000},
      {"yields_per_look", &Tuning::yields_per_look, 0, 1'000'000},
  };
  return kEntries;
}

bool Tuning::is_valid() const {
  for (const Entry& entry : entries()) {
    const std::uint64_t value = this->*entry.value;
    if (value < entry.least || value > entry.most) return false;
  }
  return true;
}

void Tuning::set(const std::string& name, std::uint64_t value) {
  std::string names;
  for (const Entry& entry : entries()) {
    if (name != entry.name) {
      names += (names.empty() ? "" : ", ") + std::string(entry.name);
      continue;
    }
    if (value < entry.least || value > entry.most)
      throw Error(ErrorKind::Value, "tuning: " + name + " must be in [" +
                                        std::to_string(entry.least) + ", " +
                                        std::to_string(entry.most) + "], got " +
                                        std::to_string(value));
    this->*entry.value = value;
    return;
  }
  throw Error(ErrorKind::Value,
              "tuning: there is no '" + name + "'; there are " + names);
}

}  // namespace allhands
