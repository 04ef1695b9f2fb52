// The tuning that fits a host, from what is known about the host.
//
// - The last cache: outputs are written past the caches from a quarter of its size on,
//   as the
//   inputs and outputs of two ranks then fill it, and from 8 MiB on in any case. Three
//   sixteenths of it, 8 to 48 MiB, is the most that is read in place.
// - The rehearsal's break-even: an array is read only if it is at least that large, and
//   at least 16 KiB. The limit is twice as high if several ranks read the same pages,
//   and if a reduction reads first. If both sides copy, the limit is between 16 and 64
//   KiB, as half a copy then always pays. Messages are sent at once up to half of it.
//   If the break-even is above the usual 64 KiB, reading has so little advantage that
//   an all_to_all, too, stages again what the caches do not hold.
// - If reading wins only in large pages, or never: both sides copy only arrays that may
//   have such pages, messages are sent at once up to 64 KiB, and reductions never read.
//   On an AMD EPYC in a virtual machine, with 14 GB/s in small pages and 54 in large
//   ones, an exchange of 64 KiB then takes 0.7 of the time, one of 1 MiB on 4 ranks
//   0.6, an all_to_all of 4 MiB 0.5 to 0.65, and a scatter of 8 MiB 0.4.
// - If ranks take turns, reading begins at larger sizes anyway. These sizes rise with
//   the break-even only if it is above the usual one. If reading wins only in large
//   pages, only gathers, scatters, broadcasts of two ranks and messages read.
#pragma once

#include "allhands/calibration/host_facts.hpp"
#include "allhands/host/tuning.hpp"

namespace allhands {

// For `size` ranks.
Tuning fit(int size, const HostFacts& facts);

}  // namespace allhands
