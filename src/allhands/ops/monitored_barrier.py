"""monitored_barrier: a barrier whose error begins with who is to blame."""

from __future__ import annotations

import warnings
from datetime import timedelta

from allhands.groups.arguments import Group, is_outside, resolve

__all__ = ["monitored_barrier"]


def monitored_barrier(
    group: Group = None,
    timeout: timedelta | float | None = None,
    wait_all_ranks: bool = False,
) -> None:
    """`barrier` whose error begins with the global rank that did not come in time.

    With `wait_all_ranks` it begins with all of them. In both forms every rank that came
    gets the error at the first rank's `timeout`, and a late one when it comes; `ranks`
    of the error holds all missing ranks of `group`. A `timeout` in seconds instead of
    as a timedelta is taken, with a warning.

    Raises:
        TypeError: `timeout` is no timedelta. A float warns, and counts as seconds.
        CollectiveTimeoutError: some ranks did not come, but are alive.
        RankFailedError: some are dead.

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
    member.monitored_barrier(timeout, wait_all_ranks)
