#include "allhands/calibration/fit.hpp"

#include <algorithm>

namespace allhands {
namespace {

using Bytes = std::uint64_t;

constexpr Bytes kKiB = Bytes{1} << 10, kMiB = Bytes{1} << 20;
constexpr Bytes kNever = Bytes{1} << 40;
// Below this size a system call's fixed cost decides, and all operations except the
// simplest have more of it.
constexpr Bytes kLeast = 16 * kKiB;
// The break-even that Tuning::for_ranks assumes.
constexpr Bytes kUsual = 64 * kKiB;

// Rounds up to whole pages, within the tuning's limit.
Bytes pages(Bytes bytes) {
  return bytes >= kNever ? kNever : (bytes + 4 * kKiB - 1) / (4 * kKiB) * (4 * kKiB);
}

void fit_caches(Tuning& tuning, int size, bool is_crowded, const HostFacts& facts) {
  const Bytes last_cache = facts.last_cache_bytes;
  if (last_cache != 0) {
    // The outputs of all ranks together fill half of the cache. To write past it what
    // would fit takes up to 2.6 times as long; the other mistake 1.3 times.
    const auto ranks = static_cast<Bytes>(std::max(size, 1));
    tuning.stream_bytes = std::clamp(last_cache / 2 / ranks, 2 * kMiB, 8 * kMiB);
    // With 4 and 8 ranks on 2 CPUs with 32 MiB, reductions of 2 to 16 MiB in chunks of
    // 512 KiB take 0.7 to 1 of the time of 1 MiB.
    if (is_crowded)
      tuning.chunk_bytes = std::clamp(pages(last_cache / 64), 256 * kKiB, kMiB);
    else
      tuning.read_most_bytes = std::clamp(last_cache / 16 * 3, 8 * kMiB, 48 * kMiB);
  }
  // The advantage of the slots, that copies to outputs go past the caches, holds for
  // reading too on such CPUs: 0.4 to 0.8 of their time for all_gather and scatter of 8
  // to 64 MiB.
  if (facts.kernel_copies_past_caches) tuning.read_most_bytes = kNever;
}

// Whether reading small pages takes little longer than the slots. It is then the safer
// way where nobody else reads the same pages: with a hypervisor that moves CPUs to
// other caches, the slots take 0.8 to 1 or 2 to 3 times as long (an AMD EPYC, 256 KiB
// to 1 MiB).
bool is_near_tie(const Figures& figures) {
  return figures.read.back() < figures.slots.back() / 2 * 3;
}

// For a host on which reading small pages never pays: reductions, which find in the
// slots what they compute on, do not gain from large pages either.
void fit_slow_reading(Tuning& tuning, const Figures& figures) {
  const bool is_tie = is_near_tie(figures);
  tuning.read_all_to_all_bytes = is_tie ? 256 * kKiB : tuning.read_bytes;
  tuning.read_rooted_bytes = tuning.handover_bytes =
      is_tie ? 256 * kKiB : Figures::kLargePages;
  tuning.eager_bytes = kUsual;
  tuning.read_reduce_bytes = tuning.read_reduce_scatter_bytes = kNever;
}

// From which size on a message is read. To offer it first costs about as much as the
// smallest read. A message in one direction has half of either way's work on each side.
Bytes message_break_even(const Figures& figures) {
  return std::clamp(figures.break_even(figures.read[0]), kLeast, Figures::kLargest);
}

void fit_figures(Tuning& tuning, const Figures& figures) {
  const Bytes least = std::clamp(figures.break_even(), kLeast, kNever);
  tuning.read_bytes = tuning.read_all_to_all_bytes = pages(least);
  tuning.read_rooted_bytes = pages(std::min(least, kUsual));
  tuning.read_broadcast_bytes = tuning.read_reduce_scatter_bytes = pages(2 * least);
  tuning.handover_bytes = pages(message_break_even(figures));
  tuning.eager_bytes = std::min(tuning.handover_bytes, kUsual);
  if (least > kUsual) tuning.read_most_all_to_all_bytes = tuning.read_most_bytes;
  if (least >= Figures::kLargePages) fit_slow_reading(tuning, figures);
}

void fit_crowded(Tuning& tuning, const Figures& figures) {
  const Bytes break_even = figures.break_even();
  if (break_even <= kUsual) return;
  if (break_even >= Figures::kLargePages) {
    tuning.read_bytes = kNever;
    fit_slow_reading(tuning, figures);
    return;
  }
  for (Bytes Tuning::* const size :
       {&Tuning::read_bytes, &Tuning::read_all_to_all_bytes,
        &Tuning::read_reduce_scatter_bytes})
    tuning.*size = pages(tuning.*size / kUsual * break_even);
}

}  // namespace

Tuning fit(int size, const HostFacts& facts) {
  Tuning tuning = Tuning::for_ranks(size, facts.cpus);
  const bool is_crowded = size > facts.cpus;
  fit_caches(tuning, size, is_crowded, facts);
  if (!facts.figures) return tuning;
  if (is_crowded)
    fit_crowded(tuning, *facts.figures);
  else
    fit_figures(tuning, *facts.figures);
  return tuning;
}

}  // namespace allhands
