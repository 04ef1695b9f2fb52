"""The programs of the page for people who come from mpi4py, and what they print.

The page shows each program on one number of ranks. On other numbers it prints the same,
except for `halo.py`, in which every rank prints a row.
"""

from harness.documents import ROOT, read

NAMES = ("matvec.py", "mandelbrot.py", "counter.py", "rows.py", "halo.py")
PAGE = ROOT / "docs" / "coming-from-mpi4py.md"


def text(name, backend=None):
    """The program, or the program with `backend` as the backend that it names."""
    program = read(PAGE).programs()[name]
    assert program.count("init_process_group()") == 1
    if backend is None:
        return program
    return program.replace("init_process_group()", f'init_process_group("{backend}")')


def printed(name, size):
    """The lines that it prints on `size` ranks, as `lines_of` has them."""
    if name == "halo.py":
        return sorted(_halo(rank, size) for rank in range(size))
    [shown] = [each for each in read(PAGE).commands() if each.line.endswith(f" {name}")]
    return lines_of(name, shown.output)


def lines_of(name, output):
    """The lines of a job as the ranks printed them; sorted where several ranks do."""
    lines = [
        line.partition("] ")[2] if line.startswith("[rank") else line for line in output
    ]
    return sorted(lines) if name == "halo.py" else lines


def _halo(rank, size):
    """Both columns of a rank, between the columns of its neighbours."""
    return f"[{(rank - 1) % size} {rank} {rank} {(rank + 1) % size}]"
