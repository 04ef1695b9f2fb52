"""faults: what is to go wrong within a `with` block, for tests of a user's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from allhands.backends.fault_text import parse
from allhands.backends.faults import Faults
from allhands.groups.world import current

__all__ = ["faults"]


@contextmanager
def faults(text: str) -> Iterator[Faults]:
    """Let operations of this rank go wrong, as `text` says, within a `with` block.

    `text` is as in [`ALLHANDS_FAULTS`](#faults-on-demand), and is counted from the
    block's beginning. Any rank may have such a block, with a text of its own, before or
    after `init_process_group`; no operation may be under way as it begins or ends.
    Blocks may be nested. A persistent operation meets what goes wrong where it was
    prepared within the block.

    Yields:
        What was asked for; its `num_done` says how often it has come to pass here.

    Raises:
        ValueError: `text` cannot be read, or cannot come to pass in this world.
        InjectedError: an operation in the block raises it where `text` says so.

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
        yield asked
    finally:
        world.fault_point.ask_no_more_for(asked, world.groups.values())
