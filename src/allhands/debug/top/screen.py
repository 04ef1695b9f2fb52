"""Screen: the live table, with keys that sort it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from allhands.debug.top.keyboard import Keyboard
from allhands.debug.top.row import RankRow
from allhands.debug.top.table import KEYS, sorted_rows, table_of
from allhands.debug.top.watch import Watch

__all__ = ["headline", "show"]

_HELP = "  ".join(f"{key} {head}" for key, (head, _) in KEYS.items())
_LINES_AROUND = 6  # lines above and below the rows


def show(watch: Watch, interval: float, key: str) -> None:
    """Show the table until `q`, Ctrl-C, or the end of all ranks."""
    console, keyboard = Console(), Keyboard()
    with (
        keyboard.reading(),
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        rows, is_done = _rows_of(watch, keyboard, min(interval, 0.5)), False
        while not is_done:
            live.update(_page(watch, rows, key, console), refresh=True)
            end = time.monotonic() + interval
            while not watch.has_ended and (rest := end - time.monotonic()) > 0:
                pressed = keyboard.wait(min(rest, watch.pause())).lower()
                watch.look()
                if "q" in pressed:
                    return
                if chosen := [each for each in pressed if each in KEYS]:
                    key = chosen[-1]
                    live.update(_page(watch, rows, key, console), refresh=True)
            is_done = watch.has_ended
            rows = watch.rows()
    console.print(Text(f"{headline(watch, rows)}: no rank is left"), soft_wrap=True)


def _rows_of(watch: Watch, keyboard: Keyboard, seconds: float) -> list[RankRow]:
    """Return the first rows after a short while."""
    end = time.monotonic() + seconds
    while (rest := end - time.monotonic()) > 0:
        keyboard.wait(min(rest, watch.pause()))
        watch.look()
    return watch.rows()


def headline(watch: Watch, rows: Sequence[RankRow]) -> str:
    """Return whose table this is, and how many ranks are missing in it."""
    elsewhere = watch.world_size - len(rows)
    text = f"{len(rows)} of {watch.world_size} ranks on {watch.host}"
    return f"{text}; {elsewhere} elsewhere, or not yet here" if elsewhere > 0 else text


def _page(watch: Watch, rows: Sequence[RankRow], key: str, console: Console) -> Group:
    room = max(1, console.size.height - _LINES_AROUND)
    shown = sorted_rows(rows, key)[:room]
    hidden = len(rows) - len(shown)
    more = f"{hidden} more ranks;  " if hidden else ""
    return Group(
        Text(headline(watch, rows), no_wrap=True, overflow="ellipsis"),
        table_of(shown, key, console.size.width),
        Text(f"{more}sort by: {_HELP}   q quit", no_wrap=True, overflow="ellipsis"),
    )
