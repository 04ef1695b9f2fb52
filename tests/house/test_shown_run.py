"""The README's table, picture and text of speed are those of one kept run."""

import re

import pytest

from allhands.bench.plot import fingerprint
from allhands.bench.record import read_record
from allhands.bench.results import geometric_mean, ratio
from allhands.debug.byte_sizes import parse_size
from harness.documents import ROOT

RUN = ROOT / "benchmarks/results/operations.json"
PICTURE = "benchmarks/results/operations.png"
SHOWN = ("all_reduce", "all_gather_single")  # in the picture
TABLE_ROW = re.compile(r"^\| `(\w+)` \| (\d) \| ([^|]+) \| ([^|]+) \| (.+) \| (.+) \|$")
MACHINE, ROWS = read_record(RUN)
README = (ROOT / "README.md").read_text()


def test_the_table_has_the_figures_of_the_run():
    cells = {(r[0].cell.op, r[0].cell.ranks, r[0].cell.size): r for r in ROWS}
    lines = [m.groups() for m in map(TABLE_ROW.match, README.splitlines()) if m]
    assert len(lines) > 10
    for op, ranks, size, *times in lines:
        row = cells[
            op, int(ranks), parse_size(size.removesuffix("iB").replace(" ", ""))
        ]
        by_peer = {result.peer: result for result in row}
        for text, peer in zip(times, ("allhands", "mpi", "gloo"), strict=True):
            value = by_peer[peer].median * 1e6
            want = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
            assert text == want, (op, ranks, size, peer)


def test_the_text_has_the_means_of_the_run():
    assert f"All {len(ROWS)} cells" in README
    for name, words in (("mpi", "MPICH takes"), ("gloo", "Gloo")):
        pairs = [({r.peer: r for r in row}[name], row[0]) for row in ROWS]
        times = [x for x in (ratio(*pair) for pair in pairs) if x is not None]
        mean = geometric_mean(times)
        shown = f"{mean:.1f}" if mean < 10 else f"{mean:.0f}"
        assert f"{words} {shown} times" in " ".join(README.split())


def test_the_picture_is_of_the_run():
    image = pytest.importorskip("PIL.Image")
    assert PICTURE in README
    rows = [row for row in ROWS if row[0].cell.op in SHOWN]
    with image.open(ROOT / PICTURE) as picture:
        told = picture.text["Keywords"]
        assert picture.width <= 1100  # of a page, with 150 dots per inch
    assert told == fingerprint(rows, MACHINE["limits"]), (
        f"the picture is of another run; draw it again: allhands bench "
        f"--from {RUN.name} --ops {','.join(SHOWN)} --plot {PICTURE}"
    )
