"""The debug page: shows a job in a browser, as one of its ranks sees it.

`allhands.debug.server` starts and ends it.
"""

__all__: list[str] = []
