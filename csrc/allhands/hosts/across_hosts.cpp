#include "allhands/hosts/across_hosts.hpp"

#include <exception>

#include "allhands/base/rank_text.hpp"
#include "allhands/hosts/carry_out.hpp"

namespace allhands {

void AcrossHosts::run(std::uint64_t sequence, const Operation& operation,
                      const Limits& limits) {
  const Crossing crossing = {group_,  hosts_,   arena_, engine_,
                             memory_, sequence, limits};
  try {
    carry_out(crossing, operation);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Mismatch) break_off(error);
    throw;
  } catch (const std::exception& error) {
    break_off(Error(ErrorKind::Backend, error.what()));
    throw;
  }
}

void AcrossHosts::break_off(const Error& error) {
  const Error reason = for_others(error);
  arena_.fail(reason);
  engine_.leave(reason, Presence::Aborted);
}

Error AcrossHosts::for_others(const Error& error) const {
  if (error.kind() == ErrorKind::Interrupted)
    return Error(ErrorKind::Backend, group_.describe(group_.rank) + " was interrupted");
  return error.retold(to_pass_on(error.what()));
}

}  // namespace allhands
