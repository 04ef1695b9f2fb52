"""The stub of the native module, as the module says it is.

`make stubs` runs this with the file to write.
"""

import subprocess
import sys

from harness.documents import ROOT

PATTERNS = ROOT / "csrc" / "allhands" / "python" / "stubs.pat"


def write_stub(path):
    command = ["-m", "nanobind.stubgen", "-q", "-P", "-m", "allhands._C"]
    subprocess.run(
        [sys.executable, *command, "-p", PATTERNS, "-o", path], check=True, timeout=200
    )


if __name__ == "__main__":
    write_stub(sys.argv[1])
