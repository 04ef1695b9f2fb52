"""The launcher's last lines: which rank failed first, with what, where, and who else.

The first line is short and says what happened; what the ranks' own errors tell beyond
that, such as the call in which it happened, follows in a line of its own. No fact
stands twice.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from allhands.elastic.exception_text import Raised, last_line
from allhands.elastic.failure import Failure, first_failure
from allhands.errors import CollectiveTimeoutError

__all__ = ["headline", "report", "report_from_elsewhere", "some"]

_TELLER = re.compile(r"\d+ (?:\(this process\)|reports)(?:: | )")
_WHY = re.compile(r"; (?=why(?: \(ranks of the world\))?: )")
_MESSAGE_LINES = 5
_LINE_LENGTH = 400


def report(
    failures: Sequence[Failure], num_stopped: int, done: Sequence[int] = ()
) -> list[str]:
    """The lines (at most 15) that name the first failure and count the others.

    Args:
        failures: ranks that failed, in the order in which they ended.
        num_stopped: ranks that the launcher stopped because of them.
        done: ranks that ended on their own, with exit code 0.
    """
    first = first_failure(failures)
    head, rest = _cause(first)
    lines = [f"allhands run: rank {first.rank} failed: {head}"]
    lines += [f"    {line}" for line in rest[:_MESSAGE_LINES]]
    if len(rest) > _MESSAGE_LINES:
        lines[-1] = f"    ... ({len(rest) - _MESSAGE_LINES + 1} more lines above)"
    lines += [f"  {line}" for line in _details(first)]
    place = f"host {first.host}, pid {first.pid}, local rank {first.local_rank}"
    lines.append(f"  on {place}; it ran for {first.elapsed:.1f} s")
    if first.stderr_path:
        lines.append(f"  its stderr: {first.stderr_path}")
    if first.is_secondary and done:
        lines.append(f"  ended before it, with exit code 0: rank {some(done)}")
    others = [f for f in failures if f is not first and not f.was_stopped]
    if others:
        lines.append(f"  {len(others)} more failed after it: {_grouped(others)}")
    if num_stopped:
        noun = "other" if num_stopped == 1 else "others"
        lines.append(f"  {num_stopped} {noun} stopped because of rank {first.rank}")
    return [line[:_LINE_LENGTH] for line in lines]


def report_from_elsewhere(
    told: Sequence[str], failures: Sequence[Failure], num_stopped: int
) -> list[str]:
    """The lines where another node is why the job ended, as that node has `told`.

    Args:
        told: the other launcher's lines.
        failures: ranks of this node that failed, too.
        num_stopped: ranks of this node that the launcher stopped because of it.
    """
    lines = list(told)
    others = [failure for failure in failures if not failure.was_stopped]
    if others:
        lines.append(f"  of this node, {len(others)} failed too: {_grouped(others)}")
    if num_stopped:
        noun = "rank" if num_stopped == 1 else "ranks"
        lines.append(f"  {num_stopped} {noun} of this node stopped because of it")
    return [line[:_LINE_LENGTH] for line in lines]


def headline(failure: Failure) -> str:
    """What ended a rank, in a short line."""
    return _cause(failure)[0]


def _cause(failure: Failure) -> tuple[str, list[str]]:
    """What ended a rank: a short line, and what more its message says."""
    raised = failure.raised
    if raised is None or not failure.is_by_exception:
        return failure.ending, []
    if raised.is_ours:
        head, rest = _told(raised)
    else:
        head, *rest = raised.message.split("\n")
    head = f"{raised.name}: {head}" if head else raised.name
    return head, [line for line in rest if line.strip()]


def _told(raised: Raised) -> tuple[str, list[str]]:
    """Parts the text of an error of ours: headline, and what else it says.

    The text is "<call>: rank <n> ...: <what>; <more>; ...", or in some mismatches "the
    ranks ... called different things ...: rank <n>: <call>; ...".
    """
    message = " ".join(raised.message.split("\n"))
    call, _, told = message.partition(": rank ")
    if not told:
        return message, []
    if call.startswith("the ranks "):
        return call, [f"rank {told}".replace(" (this process)", "")]
    # Who tells of it is known from the beginning of the headline.
    match = _TELLER.match(told)
    what = told[match.end() :] if match else f"rank {told}"
    what, *why = _WHY.split(what, maxsplit=1)
    clauses = what.split("; ")
    # Of a timeout: for how long, and for whom.
    taken = 2 if raised.name == CollectiveTimeoutError.__name__ else 1
    more = ["; ".join([f"in {call}", *clauses[taken:]])]
    return "; ".join(clauses[:taken]), more + why


def _details(first: Failure) -> list[str]:
    """Where it happened, and what is known beyond the cause."""
    raised = first.raised
    lines = []
    if first.exit_code == -signal.SIGKILL:
        lines.append(_who_sent_sigkill(first))
    if raised is not None and raised.where is not None:
        lines.append(f"at {raised.where}")
    if raised is not None and not first.is_by_exception:
        lines.append(f"last exception on its stderr: {_short(first)}")
    elif raised is None and last_line(first.stderr):
        lines.append(
            f"no traceback; last line on its stderr: {last_line(first.stderr)}"
        )
    elif raised is None:
        lines.append("no traceback: its stderr says nothing")
    return lines


def _who_sent_sigkill(first: Failure) -> str:
    if first.oom_kills:
        count = first.oom_kills
        noun = "process" if count == 1 else "processes"
        return f"out of memory (OOM): the kernel killed {count} {noun} here meanwhile"
    return (
        "not sent by the launcher, and the kernel counted no out-of-memory (OOM) kill"
    )


def _grouped(others: Sequence[Failure]) -> str:
    """Ranks by what ended them: "rank 0, 3 (RankFailedError); rank 1 (exit code 3)"."""
    ranks: dict[str, list[int]] = {}
    for failure in others:
        ranks.setdefault(_short(failure), []).append(failure.rank)
    shown = [f"rank {some(members)} ({cause})" for cause, members in ranks.items()]
    return "; ".join(shown[:4]) + ("; ..." if len(shown) > 4 else "")


def some(ranks: Sequence[object]) -> str:
    """The first four of them, and whether there are more."""
    return ", ".join(map(str, ranks[:4])) + (", ..." if len(ranks) > 4 else "")


def _short(failure: Failure) -> str:
    """Exception type and the first line of its message, or how the rank ended.

    The message of a rank that only followed says again what the first one's says.
    """
    raised = failure.raised
    if raised is None:
        return failure.ending
    head = raised.message.split("\n")[0]
    if failure.is_secondary or not head:
        return raised.name
    head = head if len(head) <= 80 else f"{head[:80]}..."
    return f"{raised.name}: {head}"
