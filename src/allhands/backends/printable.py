"""Text from programs and files, made fit for a terminal."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str, kept: str = "\n\t") -> str:
    """Escape characters that control a terminal or have no encoding, except `kept`."""
    if text.isprintable():
        return text
    return "".join(
        each
        if each.isprintable() or each in kept
        else each.encode("unicode_escape").decode()
        for each in text
    )
