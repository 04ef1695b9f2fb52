"""`allhands top`: shows live what the ranks of a job on this host do.

It reads the flight memory of their processes and asks them nothing.
"""

__all__: list[str] = []
