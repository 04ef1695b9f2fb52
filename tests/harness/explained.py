"""What docs/howto/several-hosts.md says of errors, held against errors that came."""

from __future__ import annotations

import functools
import re

from harness.documents import ROOT

_ROW = re.compile(r"^\| `(.+?)` \|", re.MULTILINE)


@functools.cache
def _patterns() -> dict[str, re.Pattern[str]]:
    text = (ROOT / "docs/howto/several-hosts.md").read_text()
    rows = _ROW.findall(text.partition("## What each error means")[2])
    return {row: re.compile(re.escape(row).replace(r"\.\.\.", ".+")) for row in rows}


def explained(row: str, stderr: str) -> None:
    """Hold that the document explains `row`, and that it is in `stderr`.

    Args:
        row: how one row's text begins or goes on.
        stderr: what a launcher wrote.
    """
    found = [pattern for text, pattern in _patterns().items() if row in text]
    assert found, f"the document does not explain {row!r}"
    assert any(pattern.search(stderr) for pattern in found), (row, stderr)
