"""monitored_barrier: a barrier whose error begins with the missing ranks."""

from __future__ import annotations

import warnings
from datetime import timedelta

from allhands.groups.arguments import Group, is_outside, resolve
from allhands.options import as_timedelta

__all__ = ["monitored_barrier"]


def monitored_barrier(
    group: Group = None,
    timeout: timedelta | float | None = None,
    wait_all_ranks: bool = False,
) -> None:
    """`barrier` whose error begins with the global rank that did not come in time.

    With `wait_all_ranks` the error begins with all ranks that did not come. In both
    forms every rank that came gets the error when the first rank's `timeout` passes,
    and a late rank gets it when it comes. `ranks` of the error holds all missing ranks
    of `group`.

    Raises:
        TypeError: `timeout` is not a timedelta. A float counts as seconds, with a
            warning.
        CollectiveTimeoutError: some ranks did not come, but are alive.
        RankFailedError: some ranks are dead.

    Example:
        ```python
        dist.monitored_barrier(timeout=timedelta(seconds=30))
        # [Rank 0]: Rank 1 failed to pass monitoredBarrier in 30000 ms
        ```
    """
    member = resolve(group)
    if is_outside(member, "monitored_barrier"):
        return
    if isinstance(timeout, float):
        warnings.warn(
            f"Please specify timeout arg as a timedelta. Converting current value of "
            f"{timeout} assuming it represents seconds",
            UserWarning,
            stacklevel=2,
        )
        timeout = timedelta(seconds=timeout)
    if timeout is not None:
        timeout = as_timedelta(timeout, "monitored_barrier")
    member.monitored_barrier(timeout, wait_all_ranks)
