"""The stub of the native module, which type checkers read, is that of the module."""

from harness.documents import ROOT
from harness.stub import write_stub

STUB = ROOT / "src" / "allhands" / "_C.pyi"


def test_stub_is_fresh(tmp_path):
    made = tmp_path / "_C.pyi"
    write_stub(made)
    assert STUB.read_text() == made.read_text(), "write it anew: make stubs says how"
