// The tuning that fits a host, from what is known of it.
//
// - The last cache: outputs are written past the caches from a quarter of it on, for
//   then the inputs and outputs of two ranks fill it, and from 8 MiB on in any case.
//   Three sixteenths of it, 8 to 48 MiB, is the most that is read where it lies.
// - The rehearsal's break-even: what is read is at least that, and 16 KiB. It is twice
//   as much where several read the same pages, and where a reduction reads first. Where
//   both sides copy it is between 16 and 64 KiB, for half a copy always pays then.
//   Messages go at once up to half of it. Where the break-even is above the usual 64
//   KiB, reading has so little lead that an all_to_all, too, stages again what the
//   caches do not hold.
// - Where ranks take turns, reading begins at larger sizes anyway. Only where the
//   break-even is above the usual one do they move up with it.
#pragma once

#include "allhands/calibration/host_facts.hpp"
#include "allhands/host/tuning.hpp"

namespace allhands {

// For `size` ranks.
Tuning fit(int size, const HostFacts& facts);

}  // namespace allhands
