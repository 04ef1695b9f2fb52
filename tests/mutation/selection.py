"""Which tests are near a mutant, the nearest first.

Of a Python line: the test files that speak of what it is a part of. Of a C++ file: the
core's programs near its folder, and the Python tests of what stands on the folder.
"""

import ast
import pathlib
import re
import subprocess

from workplace import ROOT

# Folders of tests, those first that take the least time and see most of one module.
KINDS = ["unit", "contract", "tensors", "property", "process", "seeds", "house"]
KINDS += ["hosts", "torch", "engines"]
NUM_NEAR = 10

# By folder of csrc/allhands: the core's nearest programs, as a pattern.
CORE = {
    "algorithms": "algorithm|choose|hosts",
    "arena": "arena|scan|sparse|reads|cooperative|shared|scribbles|meeting|contention"
    "|held_up|large",
    "base": "base|wait|flight|rank_text|process|held_up",
    "calibration": "calibration|choose|select",
    "comm": "communicator|bootstrap|select|shared|observer|opening|hosts|local_ranks",
    "engine": "engine|overwritten|message_memory|observer|suspended",
    "host": "base|wait|contention|placement|select|peer_reads|bootstrap",
    "hosts": "hosts|local_ranks",
    "kernels": "reduce|pack",
    "net": "store|sha256|base|bootstrap|interfaces|tls|opening",
    "store": "store",
    "transport/shm": "^transport|slices|engine|overwritten",
    "transport/tcp": "tcp|tls|frame|replay|hosts",
    "transport/ucx": "ucx",
    "transport": "transport|engine",
}

_COLLECTIVES = [
    "tests/unit/ops/test_collectives.py",
    "tests/unit/ops/test_gather_scatter.py",
    "tests/unit/ops/test_all_to_all.py",
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
_HOSTS = [
    "tests/process/test_several_hosts.py",
    "tests/hosts/test_operations.py",
    "tests/hosts/test_fake_hosts.py",
    "tests/hosts/test_several_sockets.py",
]
_GROUPS = [
    "tests/unit/groups/test_lifetime.py",
    "tests/unit/groups/test_init_failures.py",
    "tests/unit/groups/test_new_group.py",
    "tests/unit/groups/test_leaving.py",
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
    "tests/contract/test_store_updates.py",
    "tests/unit/rendezvous",
    "tests/process/test_tcp_store.py",
]
PYTHON = {
    "algorithms": _HOSTS,
    "arena": [*_COLLECTIVES, *_GROUPS],
    "base": [*_COLLECTIVES, *_MESSAGES, *_GROUPS, *_STORES],
    "calibration": [
        "tests/unit/backends/test_tuned.py",
        "tests/unit/bench",
        "tests/process/test_run_basics.py",
    ],
    "comm": [*_COLLECTIVES, *_MESSAGES, *_GROUPS, *_HOSTS],
    "engine": [*_MESSAGES, *_GROUPS],
    "host": [*_COLLECTIVES, *_MESSAGES, *_GROUPS, "tests/unit/test_info.py"],
    "hosts": _HOSTS,
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
    "transport": [*_MESSAGES, *_GROUPS, *_HOSTS],
    "transport/ucx": ["tests/process/test_ucx.py", "tests/hosts/test_ucx.py"],
}


def near(mutant):
    """Tests of what a mutant is in."""
    if mutant.is_python:
        return _near_of_python(mutant.path, mutant.change()[0])
    return [*_programs_near(mutant.path), *_near_of_core(mutant.path)]


def others(mutant):
    """All other tests, those first that take the least time."""
    found = [] if mutant.is_python else _programs()
    found += map(str, sorted(_test_files(), key=_kind))
    tried = near(mutant)
    return [test for test in found if test not in tried]


def _programs_near(path):
    """The core's programs near a C++ file; none of the binding."""
    pattern = _row_of(path, CORE)
    if pattern is None:
        return []  # they do not contain it
    found = [name for name in _programs() if re.search(pattern, name)]
    return sorted(found, key=lambda name: not _words(path) & {*name.split("_")})


def _programs():
    return sorted(path.stem for path in (ROOT / "csrc/tests").glob("*_test.cpp"))


def _near_of_core(path):
    """Python test files of a C++ file: those named like it first."""
    listed = []
    for name in _row_of(path, PYTHON):
        found = sorted((ROOT / name).glob("test_*.py")) or [ROOT / name]
        listed += [test.relative_to(ROOT) for test in found]
    listed.sort(key=lambda test: not _words(path) & _words(test))
    return [str(test) for test in dict.fromkeys(listed)]


def _near_of_python(path, line):
    """Test files that speak most of a line of a Python file.

    They are named like its module, or name it, or what the line is a part of.
    """
    module = path.relative_to(ROOT / "src").with_suffix("")
    names = [module.stem, *_names_around(path, line)]
    words = re.compile("|".join(rf"\b{name}\b" for name in names))

    homes = [("unit", *module.parts[1:-1]), module.parts[1:-1]]

    def score(test):
        return (
            2 * len(set(words.findall((ROOT / test).read_text())))
            + 4 * (test.stem == f"test_{module.stem.strip('_')}")
            + 2 * (test.parts[1:-1] in homes)
            + 3 * bool(_words(test) & set(module.parts[1:]))
        )

    ranked = sorted((-score(test), _kind(test), test) for test in _test_files())
    nearest = [test for *_, test in ranked[:NUM_NEAR]]
    return list(map(str, sorted(nearest, key=_kind)))


def _test_files():
    listed = subprocess.check_output(
        ["git", "ls-files", "tests/**/test_*.py"], cwd=ROOT, text=True
    )
    return map(pathlib.Path, listed.split())


def _kind(test):
    return KINDS.index(test.parts[1])


def _row_of(path, table):
    """The row of the innermost folder that a C++ file is in; None where it has none."""
    within = path.relative_to(ROOT / "csrc" / "allhands").parents
    rows = (table.get(folder.as_posix()) for folder in within)
    return next(filter(None, rows), None)


def _words(path):
    """What its name is made of."""
    return {*path.stem.split("_")} - {"test"}


def _names_around(path, line):
    """The names of the definitions that a line is in."""
    return [
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and node.lineno <= line <= node.end_lineno
        and not node.name.startswith("__")
    ]
