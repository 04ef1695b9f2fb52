"""What each communicator leaves out of the contract, and why: a page of the documents.

`python -m harness.contract` in the folder `tests` writes docs/reference/contract.md. Of
the tests that are put to each communicator the suite skips what stands here.
"""

import ast
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "contract.md"
SUITE = ROOT / "tests" / "contract" / "test_communicator.py"

COLUMNS = {
    "native": "`native`",
    "gloo": "`gloo`",
    "mpi": "`mpi`",
    "xccl": "`xccl`",
    "nccl": "`nccl`",
    "fake": "`fake`",
    "documents": "[your own](../howto/write-a-backend.md)",
    "user's group": "[torch's way](../howto/write-a-backend.md#coming-from-torch)",
}
"""The backends, and communicators in front of `native`, as the page calls them."""

MOVES_NOTHING = "moves nothing"
REFUSES_NOTHING = "refuses nothing"
FAKE = {
    MOVES_NOTHING: (
        *("every_collective", "every_coalesced_operation", "the_methods_are_calls"),
        *("messages", "messages_of_any_source", "a_message_to_itself", "scans"),
        *("receives_that_tell_what_came", "probes"),
        *("a_prepared_call_runs_again_and_again", "shared_arrays"),
        "a_coalescing_communicator_starts_everything",
    ),
    REFUSES_NOTHING: (
        "coalesced_lists_of_unlike_length_are_refused",
        "an_unknown_operation_is_refused_by_name",
        "ranks_that_call_different_things_are_told_so",
    ),
}
NOT_COMPARED = "does not compare what ranks call"
NO_SHARED_ARRAYS = "has no shared arrays"
REASONS = {
    "fake": FAKE,
    "gloo": {
        "Gloo has no messages of a rank to itself": ("a_message_to_itself",),
        "Gloo does not tell what has come": ("receives_that_tell_what_came", "probes"),
        NO_SHARED_ARRAYS: ("shared_arrays",),
        NOT_COMPARED: ("ranks_that_call_different_things_are_told_so",),
    },
    "mpi": {
        NO_SHARED_ARRAYS: ("shared_arrays",),
        NOT_COMPARED: ("ranks_that_call_different_things_are_told_so",),
    },
    "xccl": {
        "oneCCL has no messages between CPU arrays": (
            *("messages", "messages_of_any_source", "a_message_to_itself"),
            *("receives_that_tell_what_came", "probes"),
        ),
        NO_SHARED_ARRAYS: ("shared_arrays",),
        NOT_COMPARED: ("ranks_that_call_different_things_are_told_so",),
    },
    "nccl": {
        "NCCL has no scan": ("scans",),
        "NCCL receives from a rank that is named": ("messages_of_any_source",),
        "NCCL orders messages by streams": ("messages", "a_message_to_itself"),
        "NCCL does not tell what has come": ("receives_that_tell_what_came", "probes"),
        NO_SHARED_ARRAYS: ("shared_arrays",),
        NOT_COMPARED: ("ranks_that_call_different_things_are_told_so",),
    },
    "documents": {
        "has no scan": ("scans",),
        "receives from a rank that is named": ("messages_of_any_source",),
        "has no probes": ("receives_that_tell_what_came", "probes"),
        NO_SHARED_ARRAYS: ("shared_arrays",),
        NOT_COMPARED: ("ranks_that_call_different_things_are_told_so",),
    },
    "content check": {
        "compares in a thread, which drops a call a moment later": (
            "no_output_is_kept",
        ),
    },
    "one by one": {NO_SHARED_ARRAYS: ("shared_arrays",)},
    "user's group": {
        "torch has no method for it": (
            *("scans", "shared_arrays", "receives_that_tell_what_came", "probes"),
        ),
    },
}
REASONS["user's group that coalesces"] = REASONS["user's group"]
IN_JOBS = "native", "one by one"
"""The communicators that the jobs of the libraries put to the suite.

The others are the same in front of each library, or do without it.
"""


def why_skipped(name, test):
    """Why the communicator or backend `name` is not put to `test`; None: it is."""
    for reason, tests in REASONS.get(name, {}).items():
        if test.removeprefix("test_") in tests:
            return f"{name}: {reason}"
    return None


def reasons(*names):
    """Those of these communicators and backends, as `why_skipped` has them."""
    return {f"{name}: {reason}" for name in names for reason in REASONS.get(name, ())}


def skips(output):
    """The reasons that pytest has printed for the tests of the suite."""
    lines = re.findall(r"^SKIPPED \[\d+\] (\S+?):\d+: (.*)$", output, re.MULTILINE)
    return {reason for path, reason in lines if path.endswith(SUITE.name)}


def told(job):
    """What a job of pytest has printed, without the tests that it has skipped."""
    lines = job.stdout.splitlines()
    return "\n".join(
        [*(line for line in lines if "SKIPPED" not in line), job.stderr[-2000:]]
    )


def promises():
    """The tests of the suite that are put to each communicator, by their names."""
    return [
        node.name.removeprefix("test_")
        for node in ast.parse(SUITE.read_text()).body
        if isinstance(node, ast.FunctionDef)
        and node.name.startswith("test_")
        and "make" in [argument.arg for argument in node.args.args]
    ]


def page():
    """The text of the page."""
    names = promises()
    rows = [["", *COLUMNS.values()], ["---"] * (1 + len(COLUMNS))]
    for name in names:
        found = [why_skipped(column, name) for column in COLUMNS]
        cells = [text.partition(": ")[2] if text else "yes" for text in found]
        rows.append([name.replace("_", " "), *cells])
    counts = [
        sum(why_skipped(column, name) is not None for name in names)
        for column in COLUMNS
    ]
    rows.append([f"skipped of {len(names)}", *map(str, counts)])
    return _TEXT + "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


_TEXT = """# What backends do

One suite of tests, that of a `Communicator`, runs on every backend: in `make test` on
`native`, on `fake`, on the one of
[Write your own backend](../howto/write-a-backend.md), on torch's way to write one, and
on communicators in front of others; in `make test-torch` on `gloo`; in
`make test-engines` on `mpi`, of MPICH and of Open MPI, and on `xccl`. `make test` also
runs it on `nccl`, with stand-ins for NCCL and CUDA in CPU memory. These are its tests,
and the reasons why some are skipped. A test holds that it skips what stands here.

"""

if __name__ == "__main__":
    PAGE.write_text(page())
