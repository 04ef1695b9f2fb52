"""The stub of the native module, which type checkers read, is that of the module."""

import subprocess
import sys

from harness.documents import ROOT

STUB = ROOT / "src" / "allhands" / "_C.pyi"
PATTERNS = ROOT / "csrc" / "allhands" / "python" / "stubs.pat"


def test_stub_is_fresh(tmp_path):
    made = tmp_path / "_C.pyi"
    command = ["-m", "nanobind.stubgen", "-q", "-P", "-m", "allhands._C"]
    subprocess.run(
        [sys.executable, *command, "-p", PATTERNS, "-o", made], check=True, timeout=200
    )
    assert STUB.read_text() == made.read_text(), "write it anew: make stubs says how"
