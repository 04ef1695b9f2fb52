"""faults: makes operations go wrong within a `with` block, for tests of users."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from allhands.backends.fault_text import parse
from allhands.backends.faults import Faults
from allhands.groups.world import current

__all__ = ["faults"]


@contextmanager
def faults(text: str) -> Iterator[Faults]:
    """Let operations of this rank go wrong within a `with` block, as `text` says.

    `text` has the form of [`ALLHANDS_FAULTS`](#faults-on-demand); operations are
    counted from the beginning of the block. Any rank may have such a block, with its
    own text, before or after `init_process_group`. No operation may be under way when
    the block begins or ends. Blocks may be nested. A persistent operation meets faults
    only if it was prepared within the block.

    Yields:
        The faults; `num_done` says how often they have happened here.

    Raises:
        ValueError: `text` cannot be parsed, or its faults cannot happen in this world.
        InjectedError: an operation in the block raises it if `text` says so.

    Example:
        ```python
        with dist.debug.faults("rank=1,op=all_reduce,nth=3,do=delay:200ms"):
            train(num_steps=5)  # rank 1 comes late to the third all_reduce
        ```
    """
    asked = Faults(parse(text, "faults(text): text"))
    world = current()
    world.fault_point.ask_for(asked, world.groups.values())
    try:
        if world.default is not None:
            world.fault_point.check()
            world.fault_point.tell_of_strangers(world.default.size())
        yield asked
    finally:
        world.fault_point.ask_no_more_for(asked, world.groups.values())
