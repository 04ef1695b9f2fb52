"""Which tests see a mutant, the nearest first.

Of a Python line: the test files that run it, as the CoverageMap says. Of a C++ file:
the core's programs, and the Python tests of what stands on its folder.
"""

import ast
import pathlib
import re
import subprocess

from coverage_map import ROOT

# By folder of csrc/allhands: the core's nearest programs, as a pattern.
CORE = {
    "arena": "arena|scan|sparse|reads|cooperative|shared|scribbles",
    "base": "base|wait",
    "calibration": "calibration",
    "comm": "communicator|bootstrap|select|shared",
    "engine": "engine|overwritten",
    "host": "base|wait|placement|select|peer_reads|bootstrap",
    "kernels": "reduce|pack",
    "net": "store|sha256|base|bootstrap",
    "store": "store",
    "transport": "transport|slices|engine|overwritten",
}

_COLLECTIVES = [
    "tests/unit/ops/test_collectives.py",
    "tests/unit/ops/test_reductions.py",
    "tests/unit/ops/test_mismatches.py",
    "tests/unit/ops/test_timeouts.py",
    "tests/unit/ops/test_waiting.py",
    "tests/unit/ops/test_coalesced.py",
    "tests/unit/ops/test_overlaps.py",
    "tests/unit/ops/test_persistent.py",
    "tests/unit/ops/test_shared_arrays.py",
    "tests/process/test_reading_peers.py",
    "tests/process/test_cooperative_copies.py",
    "tests/process/test_shared_arrays.py",
    "tests/process/test_failures.py",
    "tests/property",
]
_MESSAGES = [
    "tests/unit/ops/test_p2p.py",
    "tests/unit/ops/test_p2p_random.py",
    "tests/unit/ops/test_timeouts.py",
    "tests/unit/ops/test_waiting.py",
    "tests/unit/ops/test_objects.py",
    "tests/process/test_large_messages.py",
    "tests/process/test_messages.py",
    "tests/process/test_failures.py",
]
_GROUPS = [
    "tests/unit/groups/test_lifetime.py",
    "tests/unit/groups/test_order.py",
    "tests/process/test_init_failures.py",
    "tests/process/test_descriptors.py",
    "tests/process/test_exit.py",
]
_ARRAYS = [
    "tests/unit/arrays",
    "tests/unit/backends",
    "tests/contract/test_communicator.py",
    "tests/tensors",
]
_STORES = [
    "tests/unit/store",
    "tests/contract/test_store.py",
    "tests/unit/rendezvous",
    "tests/process/test_tcp_store.py",
]
PYTHON = {
    "arena": [*_COLLECTIVES, *_GROUPS],
    "base": [*_COLLECTIVES, *_MESSAGES, *_GROUPS, *_STORES],
    "calibration": [
        "tests/unit/backends/test_tuned.py",
        "tests/unit/bench",
        "tests/process/test_run_basics.py",
    ],
    "comm": [*_COLLECTIVES, *_MESSAGES, *_GROUPS],
    "engine": [*_MESSAGES, *_GROUPS],
    "host": [*_COLLECTIVES, *_MESSAGES, *_GROUPS, "tests/unit/test_info.py"],
    "kernels": [
        *_COLLECTIVES[:2],
        *_ARRAYS,
        "tests/property",
        "tests/process/test_float_environment.py",
    ],
    "net": [*_STORES, *_GROUPS],
    "python": [
        "tests/house/test_stub.py",
        *(*_ARRAYS, *_COLLECTIVES[:9], *_MESSAGES[:5], *_STORES, *_GROUPS),
    ],
    "store": _STORES,
    "transport": [*_MESSAGES, *_GROUPS],
}


def folder_of(path):
    """The folder of csrc/allhands that a C++ file is in, its first level."""
    return path.relative_to(ROOT / "csrc" / "allhands").parts[0]


def programs_of(path, folder):
    """The core's programs, which are in `folder`: those near a C++ file first."""
    near = re.compile(CORE.get(folder_of(path), "$^"))
    names = sorted(program.name for program in folder.glob("*_test"))
    if folder_of(path) not in CORE:
        return []  # they do not contain it
    return sorted(names, key=lambda name: near.search(name) is None)


def tests_of_core(path, coverage_map):
    """Python test files of a C++ file."""
    listed = []
    for name in PYTHON[folder_of(path)]:
        found = sorted((ROOT / name).glob("test_*.py")) or [ROOT / name]
        listed += [str(test.relative_to(ROOT)) for test in found]
    return [test for test in dict.fromkeys(listed) if coverage_map.passes(test)]


def tests_of_python(path, line, coverage_map):
    """Test files of a line of a Python file: those named like it, then the fastest."""
    module = path.relative_to(ROOT / "src" / "allhands")
    own = pathlib.Path("tests/unit", module.parent, f"test_{module.stem.strip('_')}.py")

    def distance(test):
        of_test = pathlib.Path(test)
        nearness = (of_test == own) + (of_test.parent == own.parent)
        return -nearness, coverage_map.seconds(test)

    found = {
        test
        for at in lines_that_matter(path, line)
        for test in coverage_map.tests_of(path, at)
    }
    return sorted(filter(coverage_map.passes, sorted(found)), key=distance)


def lines_that_matter(path, line):
    """The lines that run where the statement of a line matters.

    Those of the statement, or of the head of a block, for coverage counts only some of
    them; of a constant of the module's own, those of its functions.
    """
    # The file may be broken by now.
    command = ["git", "show", f"HEAD:./{path.name}"]
    tree = ast.parse(subprocess.check_output(command, cwd=path.parent))
    statements = [
        node
        for node in ast.walk(tree)  # the outer ones first
        if isinstance(node, ast.stmt) and node.lineno <= line <= node.end_lineno
    ]
    if not statements:
        return [line]
    *_, node = statements
    if node in tree.body and is_private_constant(node):
        functions = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef))
        return [at for f in functions for n in f.body for at in lines_of(n)]
    body = getattr(node, "body", None)
    return (
        range(node.lineno, max(body[0].lineno, node.lineno + 1))
        if body
        else (lines_of(node))
    )


def lines_of(node):
    return range(node.lineno, node.end_lineno + 1)


def is_private_constant(node):
    return isinstance(node, ast.Assign) and all(
        isinstance(target, ast.Name) and target.id.startswith("_")
        for target in node.targets
    )
