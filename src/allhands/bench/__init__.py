"""`allhands bench`: this package compared with Gloo and MPI on the user's own machine.

The command (`command`) turns options into cells (`cells`). For each number of ranks it
starts one job per peer (`job`), whose ranks (`worker`) stay alive and sleep while
another peer is measured; `measure` lets the peers take turns on every cell.
docs/howto/bench.md says what the figures mean.
"""

__all__: list[str] = []
