"""`allhands top`: what the ranks of a job on this host do, while they do it.

It reads the flight memory of their processes and asks them for nothing.
"""

__all__: list[str] = []
