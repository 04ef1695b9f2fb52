"""`python -m allhands.bench`."""

import sys

from allhands.bench.command import main

if __name__ == "__main__":
    sys.exit(main(prog="python -m allhands.bench"))
