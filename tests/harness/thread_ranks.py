"""Lets ranks that are threads make worlds of another backend; for plug-ins."""

from harness import ranks

LIMIT = 20.0  # seconds: tests that fail on one rank leave the others waiting

_of_any_backend = ranks.run_ranks


def become(name):
    """Let `run_ranks` make worlds of `name`; who asks for another backend gets it."""

    def run_ranks(size, body, *, timeout=LIMIT, backend=None, init=True):
        """See `harness.ranks.run_ranks`."""
        chosen = name if backend in (None, "native") else backend
        return _of_any_backend(
            size, body, timeout=min(timeout, LIMIT), backend=chosen, init=init
        )

    ranks.run_ranks = run_ranks
    ranks.BACKEND = name
