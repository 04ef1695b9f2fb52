"""Where oneCCL is, and jobs of `allhands run` whose ranks use it."""

import pathlib

import pytest

from harness.launcher import environment, launch

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / ".venv-oneccl" / "lib"


def variables(**others):
    """The environment of a rank; skips the test where there is no oneCCL."""
    if not (FOLDER / "libccl.so.2").exists():
        pytest.skip(f"oneCCL is not in {FOLDER}; make test-engines installs it")
    return environment(LD_LIBRARY_PATH=str(FOLDER), CCL_YIELD="sleep", **others)


def run(size, *arguments, **others):
    """Run a job to its end."""
    given = variables(**others)
    return launch("-n", str(size), *arguments, env=given)
